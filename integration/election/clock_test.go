//go:build integration

package election

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

func TestAClockThatIsSetBackEndsNoTermAndOneThatIsSetForwardDoes(t *testing.T) {
	t.Parallel()
	clock := service.NewClock(t)
	backend := postgres.Config{DSN: pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")}
	a := join(t, "a", backend, leader.Config{}, nil)
	a.requireStory("acquired 1.1")
	a.requireWorks(1) // a Run that begins after Shutdown would start a again
	b := join(t, "b", backend, leader.Config{}, nil)
	direct := pgtest.Connect(t, backend.DSN)
	requireWaiting(t, direct, 1)

	clock.Set(t, -time.Hour)
	renewed := func() (at time.Time) {
		k1, k2, _ := election.Tag().Pair()
		require.NoError(t, direct.QueryRow(t.Context(), `SELECT query_start FROM pg_stat_activity JOIN pg_locks USING (pid)
			WHERE locktype = 'advisory' AND classid = $1::int8::oid AND objid = $2::int8::oid AND objsubid = 2 AND granted`, k1, k2).Scan(&at))
		return at
	}
	first := renewed()
	until(t, "a renewal", func() bool { return !renewed().Equal(first) })
	a.requireStory("acquired 1.1") // the control of what follows, too
	require.NoError(t, a.Shutdown(t.Context()))
	b.requireStory("acquired 1.2")
	a.requireStory("acquired 1.1", "released 1.1")
	c := join(t, "c", backend, leader.Config{}, nil)
	requireWaiting(t, direct, 1)

	ahead := time.Duration(0)
	await.Until(t, patience, func() bool { // a single step can come after the server's timer has rung
		ahead += time.Hour
		clock.Set(t, ahead)
		return slices.Contains(b.told(), "lost 1.2")
	}, "the server ends the session")
	until(t, "a later term", func() bool {
		for _, m := range []*member{b, c} {
			if term := m.Term(); m.IsLeader() && term.N > 2 {
				return true
			}
		}
		return false
	})
}
