package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// table makes a table to write to.
func (j judge) table() { j.Exec("CREATE TABLE written (what text)") }

func (j judge) written() int { return dbtest.Ask[int](j, "SELECT count(*) FROM written") }

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO written VALUES ('x')")
	return err
}

// requireRefused says that a guard refused, and that the transaction is aborted.
func requireRefused(t *testing.T, tx pgx.Tx, err error) *postgres.NotLeaderError {
	t.Helper()
	require.ErrorIs(t, err, leader.ErrNotLeader)
	var refusal *postgres.NotLeaderError
	require.ErrorAs(t, err, &refusal)
	var aborted *pgconn.PgError
	require.ErrorAs(t, write(context.Background(), tx), &aborted)
	require.Equal(t, "25P02", aborted.Code)
	require.ErrorIs(t, tx.Commit(context.Background()), pgx.ErrTxCommitRollback)
	return refusal
}

func TestARefusalSaysWhichTermHasEndedAndWhy(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	tx := judge.Begin()
	require.ErrorContains(t, requireRefused(t, tx, postgres.Guard(t.Context(), tx)), "the one that the election gives")
	require.ErrorContains(t, postgres.InTx(t.Context(), judge.Pool, write), "the one that the election gives")
	tx = judge.Begin()
	requireRefused(t, tx, postgres.Guard(a.Bind(t.Context()), tx)) // it never led
	require.ErrorIs(t, postgres.Guard(t.Context(), nil), postgres.ErrNoTransaction)

	term := lead(t, a, "a")
	for _, cause := range []error{&leader.LostError{Cause: errors.New("gone")}, leader.ErrReleased} {
		ctx, cancel := context.WithCancelCause(term)
		cancel(cause)
		tx = judge.Begin()
		require.ErrorIs(t, requireRefused(t, tx, postgres.Guard(ctx, tx)), cause)
		require.ErrorIs(t, postgres.InTx(ctx, judge.Pool, write), cause, "it cannot even begin")
	}
	require.ErrorContains(t, postgres.InTx(term, judge.Pool, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }), "guarded transaction of 1:100 in term 1.1")
	release(t, a, "a")
	tx = judge.Begin()
	refusal := requireRefused(t, tx, postgres.Guard(term, tx))
	assert.Equal(t, leader.Term{Era: 1, N: 1}, refusal.Term)
	assert.Equal(t, "1:100", refusal.Election)
	assert.Zero(t, judge.locks(), "guards leave nothing")
}

func TestAGuardBoundsTheIdlenessOfItsTransactionAndKeepsAShorterBound(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	term := lead(t, a, "a")
	for before, want := range map[string]string{
		"0": "1min", "10s": "10s", "59999": "59999ms", "1min": "1min", "61s": "1min", "2h": "1min", "1d": "1min",
	} {
		tx := judge.Begin()
		_, err := tx.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+before+"'")
		require.NoError(t, err)
		var after string
		require.NoError(t, postgres.Guard(term, tx))
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&after))
		assert.Equal(t, want, after, "it was %s", before)
		require.NoError(t, tx.Rollback(t.Context()))
	}

	// A leader that stops inside a guarded transaction does not hold a takeover up for ever.
	release(t, a, "a")
	b := newBackend(t, dsn, nil)
	won, err := b.TryAcquire(t.Context(), "b", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(b.Bind(t.Context()), tx))
	judge.Terminate(judge.holder())
	lead(t, a, "a")
	require.Error(t, tx.Commit(t.Context()))
}

func TestGuardsOfElectionsStandAllAttacks(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Guard{Open: openTerms, Ended: leader.ErrNotLeader, Elsewhere: "the term has ended", TTL: ttl})
}

// terms are the terms of an election, whose candidates have one backend each.
type terms struct {
	judge    judge
	dsn      string
	key      namespace.Key
	backends map[string]*postgres.Backend
}

func openTerms(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	return &terms{newJudge(tb, dsn), dsn, namespace.Pair(1, int32(100+number)), map[string]*postgres.Backend{}}
}

func (e *terms) backend(holder string) *postgres.Backend {
	b := e.backends[holder]
	if b == nil {
		b = newBackend(e.judge.TB(), e.dsn, func(c *postgres.Config) { c.Key = e.key })
		e.backends[holder] = b
	}
	return b
}

func (e *terms) Begin(tb testing.TB, holder string) guardtest.Right {
	tb.Helper()
	b := e.backend(holder)
	await.Until(tb, patience, func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), patience)
		defer cancel()
		won, _ := b.TryAcquire(ctx, holder, ttl) // the session of its last term may have ended
		return won
	})
	return guardtest.Right{
		Functions: guardtest.Functions{Guard: postgres.Guard, GuardSQL: postgres.GuardSQL, InTx: postgres.InTxOptions, InSQLTx: postgres.InSQLTxOptions}.Of(b.Bind(context.Background())),
		Outlives: map[string]func(testing.TB){"a renewal": func(tb testing.TB) {
			tb.Helper()
			require.NoError(tb, b.Renew(tb.Context(), holder, ttl))
		}},
		Ends: map[string]guardtest.End{
			"a release": {Do: func(tb testing.TB) {
				tb.Helper()
				release(tb, b, holder)
			}},
			"the end of the session": {Do: func(tb testing.TB) {
				tb.Helper()
				classid, objid := e.key.Tag().ClassID, e.key.Tag().ObjID
				e.judge.Terminate(dbtest.Ask[uint32](e.judge, `SELECT min(pid)`+here+` AND classid = $1 AND objid = $2 AND objsubid = 2 AND granted`, classid, objid))
			}},
		},
	}
}

func (e *terms) Blocked(tb testing.TB, holder string) {
	tb.Helper()
	b, limit := e.backend(holder), 20*time.Millisecond
	await.Until(tb, patience, func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), limit)
		defer cancel()
		limit *= 2 // a busy machine
		won, err := b.TryAcquire(ctx, holder, ttl)
		require.False(tb, won, "somebody leads beside a guarded transaction")
		return errors.Is(err, driver.ErrPending)
	})
}

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
	a.judge.Exec(`CREATE TABLE acts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, term bigint NOT NULL, seen bigint NOT NULL);
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
	err := a.begin(ctx, a.judge.Pool, func(ctx context.Context, tx pgx.Tx) error {
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
		_, _ = a.judge.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid)`+here+` AND classid = 1 AND objid = 100 AND granted`)
	}
}

// stale counts the writes that committed after one of a later term.
func (a *attack) stale() int {
	return dbtest.Ask[int](a.judge, "SELECT count(*) FROM acts WHERE seen > term")
}

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
