//go:build integration

package election

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
)

// noticeBound is how long after its successor's first operation a leader may act whose
// session the server has ended: it is told in about a millisecond. 5 ms × 20, for
// machines that have other work.
const noticeBound = 20 * 5 * time.Millisecond

// terminateSQL ends the session that holds the election lock.
var terminateSQL = fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = %d AND objid = %d AND objsubid = %d`,
	election.Tag().ClassID, election.Tag().ObjID, election.Tag().ObjSubID)

// newSetup is a server with a ledger of guarded transactions.
func newSetup(t *testing.T) (electiontest.Setup, *ledgertest.Ledger) {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	l := ledgertest.New(t, server.DSN(""))
	// The server hears nothing for a lease and ends the session, and for another one
	// before it ends a guarded transaction that was stopped half way.
	suspended, cut := electiontest.Suspended(2*ttl, attempt), electiontest.CutOff(2*ttl, attempt)
	return electiontest.Setup{
		Least: 2, Most: 9,
		Join: func(n *electiontest.Node) {
			n.Job.Role = "postgres"
			n.Job.Settings = map[string]string{"dsn": n.Through(server.DSN("")), "work": server.DSN("")}
		},
		Faults: []electiontest.Fault{
			electiontest.Killed(0, attempt), suspended, cut, electiontest.Deposed(0, attempt), electiontest.Retired(0, attempt),
			terminated(l), restarted(server, l),
		},
		Also: []electiontest.Fault{electiontest.Killed(0, attempt), suspended, cut},
		Free: func() bool {
			var n int
			err := l.Pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n)
			return err == nil && n == 0
		},
	}, l
}

// terminated is pg_terminate_backend of the leader's session.
func terminated(l *ledgertest.Ledger) electiontest.Fault {
	return electiontest.Fault{
		Name: "terminated", Quick: attempt, Notice: noticeBound,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			_, err := l.Pool.Exec(c.T.Context(), terminateSQL)
			require.NoError(c.T, err)
			return func() {}
		},
	}
}

// restarted is the server, and with it all sessions. The first attempt can meet it
// before it accepts connections.
func restarted(server *pgserver.Server, l *ledgertest.Ledger) electiontest.Fault {
	return electiontest.Fault{
		Name: "restarted", Quick: 2 * attempt, Notice: noticeBound, Outage: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			require.NoError(c.T, server.RestartAnyhow(context.WithoutCancel(c.T.Context()), c.Random))
			l.Pool.Reset()
			return func() {}
		},
	}
}

// Whatever happens to leaders, no write of an ended term commits once another
// has begun, nobody acts in an ended term for longer than is stated, and somebody
// leads again soon.
func TestNoTermOutlivesItsEndWhateverHappensToLeaders(t *testing.T) {
	setup, l := newSetup(t)
	setup.Run = replay.Start(t, "elections")
	c := electiontest.Play(t, setup)
	l.RequireLegal(t)
	setup.Run.RequireLegal(trace.Acquired, trace.Released, trace.Lost, trace.Commit, trace.Rests, trace.Fault)
	ledgertest.RequireDefied(t, c.Count)
}

// A leader that never rests is stopped just before it looks. One that does not
// look is the control.
func TestTheFirstLookOfAWokenLeaderFindsItsContextEnded(t *testing.T) {
	setup, _ := newSetup(t)
	suspended := electiontest.Suspended(2*ttl, attempt)
	c := electiontest.NewCluster(t, setup)
	c.Open(2, func(j *electiontest.Job) { j.Busy = true })
	for range 5 {
		c.Round(suspended)
	}
	c.Close()
	assert.Empty(t, c.Late())

	c.Open(2, func(j *electiontest.Job) { j.Busy, j.Reckless = true, true })
	c.Round(suspended)
	c.Close()
	require.NotEmpty(t, c.Late(), "the observer sees nothing")
	t.Log("control:", c.Late()[0])
}

// The control: without guards, and with leaders that do not look at their
// context, all checkers find what they look for.
func TestWithoutGuardsTermsOutliveTheirEnds(t *testing.T) {
	setup, l := newSetup(t)
	setup.Run = replay.Start(t, "elections")
	c := electiontest.NewCluster(t, setup)
	c.Open(3, func(j *electiontest.Job) { j.Stubborn, j.Reckless = true, true })
	for round := 0; len(c.Late()) == 0 || !l.Illegal(t) || setup.Run.Check() == nil; round++ {
		require.Less(t, round, 20, "nothing went wrong: the checkers see nothing")
		c.Round(terminated(l))
	}
	t.Logf("control: %d operations too late, such as: %s", len(c.Late()), c.Late()[0])
	tally.Control(t, "%d operations too late, and stale writes committed", len(c.Late()))
	setup.Run.RequireRefused()
	c.Close()
}
