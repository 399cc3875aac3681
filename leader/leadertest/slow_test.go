package leadertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader/driver"
)

// A slow backend takes longer than its lease for its first attempts.
type slow struct {
	*Backend
	left *int
}

func (b slow) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if *b.left > 0 {
		*b.left--
		bubble.Sleep(ttl * 9 / 5) // and less than the suite waits for an attempt, which is a second
	}
	return b.Backend.TryAcquire(ctx, identity, ttl)
}

func TestACaseThatTookLongerThanItsLeaseIsPlayedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, elections := 2, 0
		h := Harness{TTL: time.Second / 2, New: func(*testing.T) func() driver.Backend {
			elections++
			election := NewElection()
			return func() driver.Backend { return slow{election.Backend(), &left} }
		}}
		require.False(t, play(t, h, exclusionCases[0]), "its second attempt came after the end of the first one's lease")
		require.True(t, play(t, h, exclusionCases[0]))
		assert.Equal(t, 2, elections, "each in an election of its own")
	})
}
