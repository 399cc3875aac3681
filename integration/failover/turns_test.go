//go:build integration

package failover

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/turns"
)

// A mail is a mailbox on a pair of servers.
type mail struct {
	*pair
	pool *pgxpool.Pool
	box  *turns.Mailbox
	held chan error // what the commits of turns that waited returned

	mu     sync.Mutex
	turns  map[string]int           // how often each message had a turn
	closed map[string]chan struct{} // before the turns of an entity go on
}

func newMail(t *testing.T, p *pair) *mail {
	t.Helper()
	p.exec(p.primary, "CREATE TABLE done (n bigserial, entity text, id text, number bigint)")
	pool := dbtest.Pool(t, p.dsn())
	m := &mail{pair: p, pool: pool, held: make(chan error, 10), turns: map[string]int{}, closed: map[string]chan struct{}{}}
	m.box = m.open(t)
	require.NoError(t, m.box.Migrate(t.Context()))
	return m
}

// open opens the mailbox on a Locker of its own: that of another node.
func (m *mail) open(t *testing.T) *turns.Mailbox {
	t.Helper()
	locker := openLocker(t, advisory.Config{DSN: m.dsn(), LocksPerConn: 100, Wait: patience})
	box, err := turns.Open(t.Context(), turns.Config{Pool: m.pool, Name: "mail", Namespace: accounts, Locker: locker})
	require.NoError(t, err)
	return box
}

func (m *mail) serve(t *testing.T, box *turns.Mailbox) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- box.Serve(ctx, m.handle) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
}

// handle writes a row for each message. It does not look at its context.
func (m *mail) handle(ctx context.Context, t *turns.Turn) error {
	ctx = context.WithoutCancel(ctx)
	m.mu.Lock()
	for _, message := range t.Messages() {
		m.turns[message.ID]++
	}
	closed := m.closed[t.Entity().Entity()]
	m.mu.Unlock()
	if closed != nil {
		<-closed
	}
	err := t.Commit(ctx, func(tx pgx.Tx) error {
		for _, message := range t.Messages() {
			if _, err := tx.Exec(ctx, "INSERT INTO done (entity, id, number) VALUES ($1, $2, $3)", t.Entity().Entity(), message.ID, message.Number); err != nil {
				return err
			}
		}
		return nil
	})
	if closed != nil {
		m.held <- err
	}
	return err
}

// had returns how many turns a message had.
func (m *mail) had(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turns[id]
}

// gate makes the turns of an entity that begin from now on wait, until open.
func (m *mail) gate(entity string) (open func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	closed := make(chan struct{})
	m.closed[entity] = closed
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(closed)
		delete(m.closed, entity)
	})
}

func (m *mail) send(entity, id string) (ticket turns.Ticket) {
	m.t.Helper()
	key, err := accounts.Text(entity)
	require.NoError(m.t, err)
	require.NoError(m.t, pgx.BeginFunc(m.t.Context(), m.pool, func(tx pgx.Tx) (err error) {
		ticket, err = m.box.Send(m.t.Context(), tx, key, turns.Message{ID: id})
		return err
	}))
	return ticket
}

// done waits until a message was committed, on the server that takes writes.
func (m *mail) done(ticket turns.Ticket) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	o, err := m.box.Wait(ctx, ticket)
	require.NoError(m.t, err)
	require.Equal(m.t, turns.Done, o.State, ticket.ID)
}

// The control of each row is the other one.
func TestAPromotedMailboxIsInAStateThatTheOldPrimaryHad(t *testing.T) {
	t.Parallel()
	for name, synchronousCommit := range map[string]string{"asynchronous": "", "synchronous": "on"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, synchronousCommit)
			m := newMail(t, p)
			m.serve(t, m.box)
			m.done(m.send("plain", "before"))
			commit, hold := m.gate("late"), m.gate("held")
			defer hold()
			late := m.send("late", "commits late")
			m.send("held", "commits after the promotion")
			await.Until(t, patience, func() bool { return m.had(late.ID) == 1 && m.had("commits after the promotion") == 1 })
			p.caughtUp()
			if synchronousCommit == "" {
				p.stopStreaming()
			}
			acknowledged := m.send("plain", "acknowledged")
			m.done(acknowledged)
			commit()
			require.NoError(t, await.Receive(t, patience, m.held), "a commit was acknowledged")
			p.failOver()
			m.pool.Reset()

			m.serve(t, m.open(t))
			await.Until(t, patience, func() bool { return m.had("commits after the promotion") == 2 }, "another node has the turn")
			hold()
			errs := []error{await.Receive(t, patience, m.held), await.Receive(t, patience, m.held)}
			if errs[0] == nil {
				errs[0], errs[1] = errs[1], errs[0]
			}
			require.ErrorIs(t, errs[0], turns.ErrStale, "the turn of the old primary")
			require.NoError(t, errs[1])
			m.done(late)
			again := m.send("plain", "acknowledged")
			m.done(again)
			if synchronousCommit == "" {
				assert.Equal(t, 2, m.had("commits late"), "its commit is missing as a whole, so it came again")
				assert.False(t, again.Again, "the message was missing")
				assert.Equal(t, 2, m.had("acknowledged"))
			} else {
				assert.Equal(t, 1, m.had("commits late"))
				assert.Equal(t, acknowledged.Number, again.Number)
				assert.True(t, again.Again)
				assert.Equal(t, 1, m.had("acknowledged"))
			}
			assert.Equal(t, "before acknowledged", one[string](p, p.standby, "SELECT string_agg(id, ' ' ORDER BY n) FROM done WHERE entity = 'plain'"), "in order, and once")
			assert.EqualValues(t, 4, one[int64](p, p.standby, "SELECT count(*) FROM done"), "effects are missing, or there, with their messages")
			assert.Zero(t, one[int64](p, p.standby, "SELECT count(*) FROM pglatch_turns.messages"))
		})
	}
}
