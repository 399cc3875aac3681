//go:build integration

package election

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// News of the end take a while to reach the leader whose session was ended.
func TestASettleDelayCoversTheTimeInWhichALeaderDoesNotKnowOfItsEnd(t *testing.T) {
	t.Parallel()
	const notice = 500 * time.Millisecond
	overlaps := func(t *testing.T, settle time.Duration) (overlapped bool) {
		t.Helper()
		proxy, via, dsn := throughProxy(t, pgtest.DSN(t))
		a := join(t, "a", postgres.Config{DSN: via}, leader.Config{}, nil)
		a.requireWorks(1)
		leads := make(chan bool, 1)
		join(t, "b", postgres.Config{DSN: dsn}, leader.Config{SettleDelay: settle}, func(context.Context) { leads <- a.IsLeader() })
		requireWaiting(t, pgtest.Connect(t, dsn), 1)
		proxy.Delay(notice)
		terminate(t, dsn)
		return receive(t, leads, "b leads")
	}
	t.Run("with a settle delay", func(t *testing.T) {
		t.Parallel()
		require.False(t, overlaps(t, 20*notice))
	})
	t.Run("without, the control", func(t *testing.T) {
		t.Parallel()
		for range 10 {
			if overlaps(t, 0) {
				return
			}
		}
		require.Fail(t, "they never overlapped")
	})
}
