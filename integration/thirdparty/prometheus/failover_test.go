package prometheus

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

var key = namespace.Pair(7, 100)

// elector starts a node of the election, and stops it at the end of the test.
func elector(t *testing.T, n *node, dsn string, callbacks leader.Callbacks) *leader.Elector {
	t.Helper()
	backend, err := postgres.New(postgres.Config{DSN: dsn, Key: key, CreateTable: true})
	require.NoError(t, err)
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Callbacks: callbacks, Retry: backoff.Fixed{Interval: 100 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(n.metrics.Watch(e))
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e
}

// terminate ends the session that has the election's lock.
func terminate(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	k1, k2, _ := key.Tag().Pair()
	tag, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
		AND classid = $1 AND objid = $2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, k1, k2)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

// A gate stops who comes to it while it is shut.
type gate struct{ shut atomic.Pointer[chan struct{}] }

func (g *gate) close() {
	shut := make(chan struct{})
	g.shut.Store(&shut)
}

func (g *gate) open() {
	if shut := g.shut.Swap(nil); shut != nil {
		close(*shut)
	}
}

func (g *gate) pass() {
	if shut := g.shut.Load(); shut != nil {
		<-*shut
	}
}

// The successor is stopped on its way until Prometheus has seen that nobody leads, so that nothing
// depends on how fast it is.
func TestInAFailOverTheAlertIsPendingAndNeverFires(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	toLead, toReturn := new(gate), new(gate)
	toReturn.close()
	one, two := newNode(t), newNode(t)
	first := elector(t, one, dsn, leader.Callbacks{OnLost: func(leader.Term, error) { toReturn.pass() }})
	require.NoError(t, first.WaitForLeadership(t.Context()))
	second := elector(t, two, dsn, leader.Callbacks{OnStateChange: func(_, to leader.State) {
		if to == leader.Acquiring {
			toLead.pass()
		}
	}})
	t.Cleanup(toLead.open) // before the Electors are shut down
	t.Cleanup(toReturn.open)
	db := scraping(t, one, two)
	j := newJudge(t, db, "")
	sees(t, db, "leader_election_master_status", 1, 2)
	j.until("PglatchNobodyLeads", rules.StateInactive)
	await.Until(t, patience, func() bool { return len(j.look(time.Now())) == 0 }, "nothing is wrong")

	toLead.close()
	terminate(t, pgtest.Connect(t, dsn))
	j.until("PglatchNobodyLeads", rules.StatePending)
	toLead.open()
	require.NoError(t, second.WaitForLeadership(t.Context()))
	j.until("PglatchNobodyLeads", rules.StateInactive)
	j.until("PglatchLeadershipLost", rules.StateFiring)
	j.never("PglatchNobodyLeads", "PglatchTwoLead", "PglatchLeadershipFlaps", "PglatchNodeCannotLead", "PglatchWorkOutlastsLeadership")
}

// The control: somebody who takes no part holds the election's lock. Only the time that the rules
// wait is shorter.
func TestWhenNobodyLeadsTheAlertFiresControl(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stranger := pgtest.Connect(t, dsn)
	k1, k2, _ := key.Tag().Pair()
	_, err := stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", k1, k2)
	require.NoError(t, err)
	one, two := newNode(t), newNode(t)
	elector(t, one, dsn, leader.Callbacks{})
	elector(t, two, dsn, leader.Callbacks{})
	db := scraping(t, one, two)
	j := newJudge(t, db, "1s")
	sees(t, db, "leader_election_master_status", 0, 2)
	j.until("PglatchNobodyLeads", rules.StatePending)
	j.until("PglatchNobodyLeads", rules.StateFiring)
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock($1, $2)", k1, k2)
	require.NoError(t, err)
	j.until("PglatchNobodyLeads", rules.StateInactive)
	j.never("PglatchLeadershipLost", "PglatchTwoLead")
}

func TestALostLockIsAnAlertAndAReleasedOneIsNone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	n := newNode(t)
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Tracer: n.metrics.Tracer()})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	orders := namespace.Must(2, "order")
	first, err := locker.Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	require.NoError(t, first.Release())
	lock, err := locker.Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	db := scraping(t, n)
	j := newJudge(t, db, "")
	sees(t, db, "pglatch_locks_held", 1, 1)
	require.Empty(t, j.look(time.Now()))
	_, err = pgtest.Connect(t, dsn).Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(lock.PID()))
	require.NoError(t, err)
	<-lock.Lost()
	require.ErrorIs(t, lock.Release(), advisory.ErrLost)
	j.until("PglatchLockLost", rules.StateFiring)
}
