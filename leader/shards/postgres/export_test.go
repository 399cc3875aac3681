package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/namespace"
)

// PIDOf is the server's number of a session.
func PIDOf(s driver.Session) uint32 { return s.(*lockSession).pid }

// Statements is how many statements a session has had an answer to.
func Statements(s driver.Session) int64 { return s.(*lockSession).dialer.Stats().PIDChecks }

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _, err := Config{DSN: "postgres://localhost/shop", Namespace: namespace.Must(7, "tenant")}.validated()
	require.NoError(t, err)
	configdoc.Check(t, config, "DSN", "Namespace")
}

// A renewal that is begun beside a claim has as much time as the claim, and waits for it.
func TestAClaimLeavesTimeToTheRenewalBehindIt(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 125 * time.Millisecond, 10 * time.Second: 2500 * time.Millisecond, time.Hour: 3 * time.Second,
	} {
		o := &lockSession{ttl: ttl}
		assert.Equal(t, want, o.patience(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		assert.LessOrEqual(t, o.patience(ctx), min(ttl/10*3/4, want))
		cancel()
	}
}

func TestNodesThatCountAtTheSameMomentStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	const limit, locks, nodes = 10_000, 400, 16
	taken := 0
	for range nodes {
		var r room
		assert.Equal(t, int64(limit), r.limit(limit, 1), "it has not counted yet")
		r.counted(limit, locks, 0)
		for r.limit(limit, 10) == 0 {
			taken += 10
		}
	}
	assert.LessOrEqual(t, taken, limit-locks)
	assert.Greater(t, taken, (limit-locks)*9/10, "else each claim would count")
}

func TestWhatIsNearlyFullIsCountedEachTime(t *testing.T) {
	t.Parallel()
	var r room
	r.counted(150, 140, 0)
	assert.Equal(t, int64(150), r.limit(150, 1))
	r.counted(150, 160, 0)
	assert.Equal(t, int64(150), r.limit(150, 1))
	r.counted(150, 10, 100)
	assert.Zero(t, r.limit(150, 2))
	r.counted(150, 0, 0) // was not counted
	assert.Equal(t, int64(150), r.limit(150, 2))
}

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
