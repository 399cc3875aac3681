package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
)

func TestAPauseLastsItsTimeUnlessItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, pause.For(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(start))

		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		require.NoError(t, pause.For(ctx, -time.Second))
		require.Equal(t, enough, pause.For(ctx, time.Minute))
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
		require.Equal(t, enough, pause.For(ctx, 0), "it has ended before")
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}
