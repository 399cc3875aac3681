package postgres_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/postgres"
)

// attackTime is how long an attack lasts; PGLATCH_ATTACK=10s makes it longer.
func attackTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PGLATCH_ATTACK")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// goesOn reports whether an attack lasts: for its time, and on a busy machine longer, until it
// has hit.
func goesOn(t *testing.T, hit func() bool) func() bool {
	t.Helper()
	end := time.Now().Add(attackTime(t))
	return func() bool {
		now := time.Now()
		return now.Before(end) || now.Before(end.Add(patience)) && !hit()
	}
}

// An attack is an election of leaders that ignore their loss: whoever once led
// goes on writing under that term, beside its successors, in the same processes
// and in others.
type attack struct {
	judge judge
	begin func(ctx context.Context, pool postgres.Beginner, write func(context.Context, pgx.Tx) error) error

	leaderships, writes, refusals atomic.Int64
}

// writersPerTerm go on for writesPerTerm attempts each.
const (
	writersPerTerm = 2
	writesPerTerm  = 40
)

// run attacks until it has hit, at most for a while more than its time.
func (a *attack) run(t *testing.T, dsn string, hit func() bool) {
	t.Helper()
	a.judge.exec(`CREATE TABLE acts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, term bigint NOT NULL, seen bigint NOT NULL);
		CREATE TABLE latest (term bigint NOT NULL); INSERT INTO latest VALUES (0)`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var nodes, writers sync.WaitGroup
	for i := range 3 {
		b := newBackend(t, dsn, nil)
		nodes.Go(func() { a.node(ctx, b, strconv.Itoa(i), &writers) })
	}
	a.kill(ctx, goesOn(t, hit))
	cancel()
	nodes.Wait()
	writers.Wait()
}

// node leads whenever it can, and lets its writers go on when it is lost.
func (a *attack) node(ctx context.Context, b *postgres.Backend, identity string, writers *sync.WaitGroup) {
	for ctx.Err() == nil {
		if won, err := b.TryAcquire(ctx, identity, ttl); err != nil || !won {
			_ = b.Wait(ctx)
			continue
		}
		a.leaderships.Add(1)
		term, n := b.Bind(context.Background()), b.Term().Uint64()
		for range writersPerTerm {
			writers.Go(func() {
				for range writesPerTerm {
					a.write(term, int64(n))
				}
			})
		}
		select {
		case <-b.Lost():
		case <-ctx.Done():
		}
	}
}

// write is one transaction of a term. It notes the latest term that it finds and
// raises it.
func (a *attack) write(ctx context.Context, term int64) {
	err := a.begin(ctx, a.judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH latest AS (UPDATE latest SET term = greatest(l.term, $1) FROM (SELECT term FROM latest FOR UPDATE) AS l RETURNING l.term)
			INSERT INTO acts (term, seen) SELECT $1, term FROM latest`, term)
		return err
	})
	if err != nil {
		a.refusals.Add(1)
		return
	}
	a.writes.Add(1)
}

// kill ends the leader's session every 20 to 80 ms, and less often while nobody comes to lead.
func (a *attack) kill(ctx context.Context, more func() bool) {
	for led, calm := int64(0), 1.0; more(); calm++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(calm * float64(20*time.Millisecond+rand.N(60*time.Millisecond)))):
		}
		if now := a.leaderships.Load(); now > led {
			led, calm = now, 0
		}
		_, _ = a.judge.pool.Exec(ctx, `SELECT pg_terminate_backend(pid)`+here+` AND classid = 1 AND objid = 100 AND granted`)
	}
}

// stale counts the writes that committed after one of a later term.
func (a *attack) stale() int { return one[int](a.judge, "SELECT count(*) FROM acts WHERE seen > term") }

func TestNoGuardedWriteIsStaleHoweverLeadersDie(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	guarded := &attack{judge: newJudge(t, dsn), begin: postgres.InTx}
	const few = 5
	guarded.run(t, dsn, func() bool {
		return guarded.writes.Load() > 0 && guarded.refusals.Load() > 0 && guarded.leaderships.Load() > few
	})
	t.Logf("guarded: %d leaderships, %d writes, %d refused", guarded.leaderships.Load(), guarded.writes.Load(), guarded.refusals.Load())
	assert.Zero(t, guarded.stale())
	assert.Positive(t, guarded.writes.Load())
	assert.Positive(t, guarded.refusals.Load())
	assert.Greater(t, guarded.leaderships.Load(), int64(few))
}

// The control of the test above.
func TestWithoutAGuardWritesAreStale(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	bare := &attack{judge: newJudge(t, dsn), begin: func(ctx context.Context, pool postgres.Beginner, write func(context.Context, pgx.Tx) error) error {
		tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err := write(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}}
	bare.run(t, dsn, func() bool { return bare.stale() > 0 })
	t.Logf("not guarded: %d leaderships, %d writes, %d stale", bare.leaderships.Load(), bare.writes.Load(), bare.stale())
	assert.Positive(t, bare.stale())
}
