//go:build integration

package election

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// noticeBound is how long a leader whose session the server has ended may act after its
// successor's first operation. The leader detects the loss in about a millisecond. 5 ms × 20
// allows for a busy machine.
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

func TestTermsRiseWhenAStandbyThatMissedSomeBecomesThePrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	backend := postgres.Config{DSN: fmt.Sprintf("postgres://postgres@%s:%d,%s:%d/postgres?sslmode=disable",
		primary.Host(), primary.Port(), standby.Host(), standby.Port())}
	terms := make(chan leader.Term, 100)
	for _, identity := range []string{"a", "b"} {
		join(t, identity, backend, leader.Config{}, func(ctx context.Context) { terms <- leader.TermOfContext(ctx) })
	}
	connection := pgtest.Connect(t, primary.DSN(""))
	known := func() (n uint64) {
		_ = pgtest.Connect(t, standby.DSN("")).QueryRow(t.Context(), "SELECT n FROM pglatch_election").Scan(&n) // 0 at first
		return n
	}
	until(t, "the standby knows of a term", func() bool { return known() > 0 })

	var sender int
	require.NoError(t, connection.QueryRow(t.Context(), "SELECT pid FROM pg_stat_replication").Scan(&sender))
	require.NoError(t, syscall.Kill(sender, syscall.SIGSTOP))
	last := leader.Term{Era: 1, N: known()}
	for range 3 {
		terminate(t, primary.DSN(""))
		for next := last; next == last; {
			if term := receive(t, terms, "a term"); term.Compare(last) > 0 {
				last = term
			}
		}
	}
	require.NoError(t, primary.Kill())
	require.Less(t, known(), last.N, "the control: numbers that go on from the standby's would repeat")

	var promoted bool
	require.NoError(t, pgtest.Connect(t, standby.DSN("")).QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
	require.True(t, promoted)
	after := receive(t, terms, "a term on the new primary")
	t.Logf("term %v after %v", after, last)
	assert.Positive(t, after.Compare(last), "%v after %v", after, last)
	assert.Equal(t, last.Era+1, after.Era)
}

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

// The successor's settle delay shows that it knows of the good order: it would
// not lead in this test otherwise.
func TestAStopEndsTheContextThenTheWorkAndThenFreesTheLock(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*member, context.Context) error{
		"shutdown": func(m *member, ctx context.Context) error { return m.Shutdown(ctx) },
		"stepdown": func(m *member, ctx context.Context) error { return m.StepDown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := postgres.Config{DSN: pgtest.DSN(t)}
			careful := leader.Config{LeaseDuration: 5 * ttl, SettleDelay: time.Hour}
			judge := pgtest.Connect(t, backend.DSN)
			isFree := func() (free bool) {
				k1, k2, _ := election.Tag().Pair()
				assert.NoError(t, judge.QueryRow(context.Background(), "SELECT pg_try_advisory_xact_lock($1, $2)", k1, k2).Scan(&free))
				return free
			}
			ending, finish := make(chan error), make(chan struct{})
			a := join(t, "a", backend, leader.Config{LeaseDuration: careful.LeaseDuration}, func(ctx context.Context) {
				<-ctx.Done()
				ending <- context.Cause(ctx)
				<-finish
			})
			a.requireStory("acquired 1.1")
			a.requireWorks(1) // one that is stopped before it has begun never does

			stopped := make(chan error, 1)
			go func() { stopped <- stop(a, t.Context()) }()
			require.ErrorIs(t, receive(t, ending, "the work's context ended"), leader.ErrReleased)
			assert.False(t, a.IsLeader())
			for began := time.Now(); time.Since(began) < 2*careful.LeaseDuration; electiontest.Pause(t.Context(), ttl/20) {
				require.False(t, isFree(), "the lock is free while the work goes on")
			}
			require.Empty(t, stopped)
			a.requireStory("acquired 1.1")

			b := join(t, "b", backend, careful, nil)
			until(t, "b tries", func() bool { return b.State() == leader.Acquiring })
			close(finish)
			require.NoError(t, receive(t, stopped, "the stop"))
			a.requireStory("acquired 1.1", "released 1.1")
			b.requireStory("acquired 1.2")
			b.requireWorks(2) // a Run that begins after Shutdown would start b again
			require.NoError(t, b.Shutdown(t.Context()))
			assert.True(t, isFree())
		})
	}
}
