package monitor_test

import (
	"context"
	"errors"
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
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
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
