package bubble_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
)

func TestSleepMovesTheClockOfABubbleOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		bubble.Sleep(time.Hour)
		require.Equal(t, time.Hour, time.Since(before))
	})
	require.Panics(t, func() { bubble.Sleep(time.Nanosecond) })
}
