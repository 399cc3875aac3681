package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAShardThatIsBeingReleasedIsNotReportedAsLost(t *testing.T) {
	t.Parallel()
	o := newSession(nil, time.Minute)
	o.turn <- struct{}{} // the release is under way
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	o.leaving, o.odd = []string{"1"}, []string{"1", "2"}
	lost, err := o.Renew(ctx, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"2"}, lost, "only the other one is lost")

	o.leaving, o.odd = nil, []string{"1"}
	lost, err = o.Renew(ctx, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"1"}, lost, "the control: without the release it is lost")
}
