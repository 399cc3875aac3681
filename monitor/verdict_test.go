package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A mail is a database with the mailbox "chat".
type mail struct {
	*turns.Mailbox
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
}

func newMail(t *testing.T) *mail {
	t.Helper()
	dsn := pgtest.DSN(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m := &mail{t: t, dsn: dsn, pool: pool}
	m.Mailbox = m.open()
	require.NoError(t, m.Migrate(t.Context()))
	return m
}

// open opens the mailbox for one more node.
func (m *mail) open() *turns.Mailbox {
	m.t.Helper()
	locker, err := advisory.Open(m.t.Context(), advisory.Config{DSN: m.dsn, LocksPerConn: 100})
	require.NoError(m.t, err)
	m.t.Cleanup(locker.Close)
	box, err := turns.Open(m.t.Context(), turns.Config{
		Pool: m.pool, Name: "chat", Namespace: orders, Locker: locker, OnDead: turns.Stop, MaxAttempts: 1,
	})
	require.NoError(m.t, err)
	return box
}

func (m *mail) send(id int64) {
	m.t.Helper()
	require.NoError(m.t, pgx.BeginFunc(m.t.Context(), m.pool, func(tx pgx.Tx) error {
		_, err := m.Send(m.t.Context(), tx, orders.ID(id), turns.Message{Body: []byte("x")})
		return err
	}))
}

// serve serves until the test ends.
func (m *mail) serve(handler turns.Handler) {
	m.t.Helper()
	box := m.open()
	ctx, stop := context.WithCancel(context.WithoutCancel(m.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- box.Serve(ctx, handler) }()
	m.t.Cleanup(func() {
		stop()
		assert.NoError(m.t, <-ended)
	})
}

// raised waits for a verdict.
func raised(t *testing.T, m *monitor.Monitor, name string) (v monitor.Verdict) {
	t.Helper()
	await.Until(t, patience, func() bool {
		all, err := m.Verdicts(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(v monitor.Verdict) bool { return v.Name == name })
		if i >= 0 {
			v = all[i]
		}
		return i >= 0
	})
	return v
}

// Two nodes serve, so that one of them waits for the other's lock.
func TestAHealthyMailboxIsNoVerdictAndAStoppedEntityIs(t *testing.T) {
	t.Parallel()
	box := newMail(t)
	began := make(chan string, 10)
	handler := func(ctx context.Context, turn *turns.Turn) error {
		began <- turn.Entity().String()
		if turn.Entity() == orders.ID(2) {
			return errors.New("no model")
		}
		<-ctx.Done()
		return ctx.Err()
	}
	box.serve(handler)
	box.serve(handler)
	box.send(1)
	await.Receive(t, await.Soon, began)
	m := open(t, monitor.Config{DSN: box.dsn, Record: 100 * time.Millisecond})
	s := until(t, m, func(s monitor.Snapshot) bool { // two nodes, one turn, and the wait of the other node
		return len(s.Locks) == 4 && slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return !l.Granted })
	})
	require.NotEmpty(t, s.Locks)
	assert.Empty(t, judged(t, m))

	long := open(t, monitor.Config{DSN: box.dsn, LongHold: time.Millisecond, Record: 100 * time.Millisecond})
	v := raised(t, long, "turn-stuck")
	assert.Equal(t, "order/1", v.Key, "control: a turn that runs for long")
	assert.Equal(t, "note", v.Severity)

	box.send(2)
	await.Receive(t, await.Soon, began)
	v = raised(t, m, "poison-message")
	assert.Equal(t, "critical", v.Severity)
	assert.Equal(t, "order/2", v.Key)
	assert.Contains(t, v.Evidence, "its last error: no model")
}

func TestMessagesThatNobodyServesAreAVerdictIfTheRoleMaySeeThem(t *testing.T) {
	t.Parallel()
	box := newMail(t)
	box.send(1)
	_, err := box.pool.Exec(t.Context(), "UPDATE pglatch_turns.entities SET ready_at = now() - interval '1 minute'")
	require.NoError(t, err)
	v := raised(t, open(t, monitor.Config{DSN: box.dsn, Record: 100 * time.Millisecond}), "backlog-growing")
	assert.Equal(t, "critical", v.Severity)
	assert.Contains(t, strings.Join(v.Evidence, "\n"), "0 nodes serve it")

	for name, dsn := range map[string]string{"without rights": box.dsn + "&options=-c%20role%3Dpg_read_all_stats", "with other tables": box.dsn} {
		if dsn == box.dsn {
			_, err = box.pool.Exec(t.Context(), "ALTER TABLE pglatch_turns.dead RENAME error TO other")
			require.NoError(t, err)
		}
		m := open(t, monitor.Config{DSN: dsn})
		for range 3 { // each of them asks
			all, err := m.Verdicts(t.Context())
			require.NoError(t, err, name)
			assert.Empty(t, all, name)
		}
	}
}

func TestTheEntityOfATurnIsRedacted(t *testing.T) {
	t.Parallel()
	box := newMail(t)
	box.send(1)
	_, err := box.pool.Exec(t.Context(), "UPDATE pglatch_turns.entities SET attempts = 7, ready_at = now() + interval '1 minute', last_error = 'order 1 has no model'")
	require.NoError(t, err)
	v := raised(t, open(t, monitor.Config{DSN: box.dsn, Redact: func(string, string) string { return "…" }}), "poison-message")
	assert.Equal(t, "order/…", v.Key)
	assert.NotContains(t, strings.Join(append(v.Evidence, v.Text, v.Subject), " "), "order 1")
}

func TestALockTableThatFillsNamesWhoFillsIt(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20", "max_prepared_transactions": "0", "autovacuum": "off"}})
	dsn := server.DSN("postgres")
	hoarder := clitest.Connect(t, dsn, "hoarder")
	run(t, hoarder, "SELECT pg_advisory_lock(5, n) FROM generate_series(1, 170) AS n")
	run(t, clitest.Connect(t, dsn, "modest"), "SELECT pg_advisory_lock(6, 1)")
	m := open(t, monitor.Config{DSN: dsn})
	full := raised(t, m, "lock-table")
	require.GreaterOrEqual(t, len(full.Evidence), 3, full)
	require.Equal(t, fmt.Sprintf("hoarder has 170 of them: session %d of database postgres", pid(hoarder)), full.Evidence[1])
	require.True(t, strings.HasPrefix(full.Evidence[2], "modest has 1 of them"))
}

// A stopped source stops the answers of its process: those of one database have one goroutine.
type stopped struct{ called, resume chan struct{} }

func (s stopped) Connected() bool { return true }

func (s stopped) Answer(introspect.Question, *introspect.Answer) {
	select {
	case s.called <- struct{}{}:
	default:
	}
	<-s.resume
}

func (s stopped) Request(introspect.Request) []introspect.Reply { return nil }

// stopAnswers makes this process one that does not answer until the test ends.
func stopAnswers(t *testing.T, dsn string, m *monitor.Monitor) {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	s := stopped{make(chan struct{}, 1), make(chan struct{})}
	member := introspect.Join(introspect.Member{Conn: cc, Source: s})
	t.Cleanup(func() {
		close(s.resume)
		member.Leave()
	})
	await.Until(t, patience, func() bool {
		snapshot(t, m) // which asks
		return len(s.called) > 0
	})
}

func TestALockThatWasTakenJustBeforeAStopIsThatOfASilentHolder(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		l := locker(t, dsn, "stock")
		acquire(t, l, agents.ID(1))
		until(t, m, toldBy(monitor.SourceProcess))
		stopAnswers(t, dsn, m)
		acquire(t, l, agents.ID(2)) // of which it told nobody
		lock(t, clitest.Connect(t, dsn, "psql"), agents.ID(3))

		s := until(t, m, func(s monitor.Snapshot) bool { return len(s.Locks) == 3 && s.Locks[1].Silent })
		assert.True(t, s.Locks[0].Silent)
		assert.False(t, s.Locks[2].Silent, "control: of another program")

		evidence := strings.Join(raised(t, m, "holder-silent").Evidence, "\n")
		assert.Contains(t, evidence, "it holds agent/1")
		assert.Contains(t, evidence, "it holds agent/2")
		assert.NotContains(t, evidence, "agent/3")
	})
}

func TestALockOfAnIdleSessionIsAtLeastAsOldAsItsLastStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "psql")
	lock(t, conn, agents.ID(1))
	look := clitest.Connect(t, dsn, "look")
	await.Until(t, patience, func() bool {
		var idle float64
		err := look.QueryRow(t.Context(), `SELECT extract(epoch FROM clock_timestamp() - state_change)::float8 FROM pg_stat_activity WHERE pid = $1`, pid(conn)).Scan(&idle)
		return err == nil && idle > 1
	})
	s := snapshot(t, open(t, monitor.Config{DSN: dsn}))
	require.Len(t, s.Locks, 1)
	assert.Equal(t, monitor.SourceFirstSeen, s.Locks[0].HeldSince.Source)
	assert.GreaterOrEqual(t, s.Locks[0].Duration, 1.0, "of a first look")
}

// own runs a node of shards until the test ends, and returns when it owns all of them.
func own(t *testing.T, dsn, identity string, answer introspect.Config) {
	t.Helper()
	backend, err := shardspg.New(shardspg.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true, Answer: answer})
	require.NoError(t, err)
	// The lease is long, so that the sessions are idle for longer than a verdict needs to be sure.
	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Identity: identity, Shards: []string{"1", "2", "acme", "3"}, LeaseDuration: 2 * time.Minute})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	await.Until(t, patience, func() bool { return len(node.Owned()) == 4 })
}

// judged looks for seconds in which all processes answer, and returns the names of all verdicts that were raised meanwhile.
func judged(t *testing.T, m *monitor.Monitor) (names []string) {
	t.Helper()
	end := time.Now().Add(4 * time.Second)
	await.Until(t, patience, func() bool {
		all, err := m.Verdicts(t.Context())
		require.NoError(t, err)
		for _, v := range all {
			if v.Name == "holder-silent" { // true on a machine that is too busy for an answer
				names, end = nil, time.Now().Add(4*time.Second)
				return false
			}
			names = append(names, v.Name)
		}
		return time.Now().After(end)
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// The nodes of a fleet have one name for their Lockers and their shards, and lead for as long as they run.
func TestHealthyShardsAreNoVerdict(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		acquire(t, locker(t, dsn, "web-3"), agents.ID(1))
		own(t, dsn, "web-3", introspect.Config{})
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		s := until(t, m, func(s monitor.Snapshot) bool {
			return len(s.Locks) == 7 && !slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return l.HeldSince == nil || l.HeldSince.Source != monitor.SourceProcess })
		})
		assert.True(t, slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return l.Key.Text == "tenant/acme" }), "the name of a hashed key")
		assert.Empty(t, judged(t, m))

		long := open(t, monitor.Config{DSN: dsn, LongHold: time.Millisecond, Record: 100 * time.Millisecond})
		assert.Equal(t, []string{"held-long"}, judged(t, long), "control: an ordinary lock is held for long")
		assert.NotContains(t, strings.Join(raised(t, long, "held-long").Evidence, "\n"), "tenant")
	})
}

func TestShardsThatDoNotAnswerInTheNameOfAProcessThatDoesAreTakenForALeak(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		acquire(t, locker(t, dsn, "web-3"), agents.ID(1))
		own(t, dsn, "web-3", introspect.Config{Off: true})
		names, err := namespace.NewSet(agents, namespace.Must(7, "tenant"))
		require.NoError(t, err)
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond, Namespaces: names})
		await.Until(t, patience, func() bool {
			all, err := m.Verdicts(t.Context())
			require.NoError(t, err)
			return slices.ContainsFunc(all, func(v monitor.Verdict) bool { return v.Name == "pooler" && strings.HasPrefix(v.Key, "tenant/") })
		})
	})
}
