//go:build integration

package turns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/turns"
)

// A bench is a database with the mailbox.
type bench struct {
	*dbtest.Database
	box  *turns.Mailbox
	pool *pgxpool.Pool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	db := dbtest.New(t)
	db.Exec(tables)
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := turns.Open(t.Context(), mailbox(pool))
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return &bench{db, box, pool}
}

func (b *bench) start(t *testing.T, role, name string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, proctest.As(t, role, node{b.DSN, name}))
}

// stale counts the commits of a turn after a later turn of its entity began.
func (b *bench) stale() int {
	return dbtest.Ask[int](b.Database, `SELECT count(*) FROM done AS d WHERE EXISTS (
		SELECT FROM begun AS b WHERE b.entity = d.entity AND b.token > d.token AND b.n < d.n)`)
}

// sessions counts those of a node's Locker.
func (b *bench) sessions(name string) int {
	return dbtest.Ask[int](b.Database, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
}

var errAbort = errors.New("the sender aborts")

// send sends a message in a transaction that aborts now and then. It returns 0 then.
func (b *bench) send(ctx context.Context, entity string, abort bool) (number int64, err error) {
	key, err := entities.Text(entity)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		ticket, err := b.box.Send(ctx, tx, key, turns.Message{Body: []byte("hello")})
		if err == nil && abort {
			return errAbort
		}
		number = ticket.Number
		return err
	})
	if errors.Is(err, errAbort) {
		return 0, nil
	}
	return number, err
}

// A sent is what a history knows of the messages of one entity.
type sent struct {
	last    atomic.Int64 // the number of the last one that was acknowledged
	mu      sync.Mutex
	numbers map[int64]bool
}

// sendAll sends messages from several senders at once, and returns those of each entity. A message that is sent after
// another was acknowledged has a greater number.
func (b *bench) sendAll(t *testing.T, senders, messages, names int) func() map[string]*sent {
	t.Helper()
	all := map[string]*sent{}
	for i := range names {
		all[fmt.Sprintf("e%d", i)] = &sent{numbers: map[int64]bool{}}
	}
	var writing sync.WaitGroup
	for range senders {
		writing.Go(func() {
			for range messages {
				entity := fmt.Sprintf("e%d", rand.IntN(names)) //nolint:gosec // any entity
				s := all[entity]
				before := s.last.Load()
				number, err := b.send(t.Context(), entity, rand.IntN(10) == 0) //nolint:gosec // chooses what to abort
				if !assert.NoError(t, err) || number == 0 {
					continue
				}
				assert.Greater(t, number, before, "numbers follow commits")
				s.mu.Lock()
				s.numbers[number] = true
				s.last.Store(max(s.last.Load(), number))
				s.mu.Unlock()
			}
		})
	}
	return func() map[string]*sent {
		writing.Wait()
		return all
	}
}

func TestEachMessageIsCommittedOnceInOrderUnderFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	nodes := map[string]*proctest.Process{}
	for _, name := range []string{"a", "b", "c"} {
		nodes[name] = b.start(t, serving, name)
	}
	sending := b.sendAll(t, soak.Size(t, 4, 20), soak.Size(t, 100, 4000), soak.Size(t, 20, 200))
	count := func() int { return dbtest.Ask[int](b.Database, `SELECT count(*) FROM done`) }
	await.Until(t, await.Patience, func() bool { return count() > 0 })
	for round := range soak.Size(t, 3, 150) {
		name := []string{"a", "b", "c"}[round/3%3]
		p := nodes[name]
		switch round % 3 {
		case 0:
			p.Kill()
			nodes[name] = b.start(t, serving, name)
		case 1: // until the server has ended the sessions with its locks
			p.Signal(syscall.SIGSTOP)
			await.Until(t, await.Patience, func() bool { return b.sessions(name) == 0 })
			p.Signal(syscall.SIGCONT)
		case 2:
			b.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
		}
		await.Until(t, await.Patience, func() bool { return b.sessions(name) > 0 }, "the node serves again")
	}
	all := sending()
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](b.Database, `SELECT count(*) FROM pglatch_turns.messages`) == 0 })

	for entity, s := range all {
		text := dbtest.Ask[string](b.Database, `SELECT coalesce(string_agg(number::text, ' ' ORDER BY n), '') FROM done WHERE entity = $1`, entity)
		last, seen := int64(0), 0
		for field := range strings.FieldsSeq(text) {
			number, err := strconv.ParseInt(field, 10, 64)
			require.NoError(t, err)
			assert.Greater(t, number, last, "%s: in order, and once: %s", entity, text)
			assert.True(t, s.numbers[number], "%s: %d was not sent", entity, number)
			last, seen = number, seen+1
		}
		assert.Len(t, s.numbers, seen, "%s: all that was sent", entity)
	}
	assert.Zero(t, b.stale())
}

func TestAStoppedProcessDoesNotCommitAfterALaterTurnBegan(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"the token decides": false, "control: the row has the token of the old turn": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			old := b.start(t, holding, "old")
			_, err := b.send(t.Context(), "x", false)
			require.NoError(t, err)
			token := strings.TrimPrefix(old.Says("has"), "has ")
			old.Signal(syscall.SIGSTOP)
			later := b.start(t, holding, "later")
			later.Says("has") // the same message
			if control {
				b.Exec(`UPDATE pglatch_turns.entities SET token = $1::text::bigint`, token)
			}
			old.Signal(syscall.SIGCONT)
			old.Tell("commit")
			if control {
				old.Expect("committed true stale false")
				assert.Equal(t, 1, b.stale(), "the check finds it")
				return
			}
			old.Expect("committed false stale true")
			later.Tell("commit")
			later.Expect("committed true stale false")
			assert.Zero(t, b.stale())
			assert.Equal(t, 1, dbtest.Ask[int](b.Database, `SELECT count(*) FROM done`))
		})
	}
}
