package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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

func TestALeaderThatStopsInsideAGuardedTransactionDoesNotHoldATakeoverUpForEver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	won, err := a.TryAcquire(t.Context(), "a", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(a.Bind(t.Context()), tx))
	judge.Terminate(judge.holder())
	lead(t, newBackend(t, dsn, nil), "b")
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

// A fencing is a way to keep a transaction from writing under an old term.
type fencing struct {
	name string
	in   func(ctx context.Context, pool postgres.Beginner, fn func(context.Context, pgx.Tx) error) error
}

// fencings: none; Guard as the first statement; InTx, which guards twice; and what
// one would do with the table alone, which makes the successor wait too.
func fencings(n uint64) []fencing {
	first := func(check func(context.Context, pgx.Tx) error) func(context.Context, postgres.Beginner, func(context.Context, pgx.Tx) error) error {
		return func(ctx context.Context, pool postgres.Beginner, fn func(context.Context, pgx.Tx) error) error {
			tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if err := check(ctx, tx); err != nil {
				return err
			}
			if err := fn(ctx, tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}
	}
	return []fencing{
		{"none", first(func(context.Context, pgx.Tx) error { return nil })},
		{"guard", first(func(ctx context.Context, tx pgx.Tx) error { return postgres.Guard(ctx, tx) })},
		{"in_tx", postgres.InTx},
		{"for_share", first(func(ctx context.Context, tx pgx.Tx) error {
			var leads bool
			return tx.QueryRow(ctx, "SELECT n = $1 FROM public.pglatch_election WHERE election = '1:100' FOR SHARE", n).Scan(&leads)
		})},
	}
}

// BenchmarkGuard runs a transaction of one insert with each fencing in turn, in
// eight workers, b.N rounds of half a second each, and reports the median time of a
// transaction and its ratio to that without a fencing.
func BenchmarkGuard(b *testing.B) {
	dsn := pgtest.DSN(b)
	backend, judge := newBackend(b, dsn, nil), newJudge(b, dsn)
	judge.Exec("CREATE TABLE written (what text)")
	term := lead(b, backend, "a")
	const workers = 8
	systems := fencings(backend.Term().N)
	times := make([][]float64, len(systems))
	for range b.N {
		for i, system := range systems {
			times[i] = append(times[i], perTransaction(b, workers, func() error { return system.in(term, judge.Pool, write) }))
		}
	}
	for i, system := range systems {
		slices.Sort(times[i])
		median, base := times[i][len(times[i])/2], times[0][len(times[0])/2]
		b.ReportMetric(median, system.name+"_µs/tx")
		b.ReportMetric(median/base, system.name+"_ratio")
	}
}

// perTransaction is the time of one transaction of one worker, in microseconds.
func perTransaction(b *testing.B, workers int, transaction func() error) float64 {
	b.Helper()
	start := time.Now()
	var done [16]int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for time.Since(start) < time.Second/2 {
				if err := transaction(); err != nil {
					b.Error(err)
					return
				}
				done[w]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range done {
		total += n
	}
	require.Positive(b, total)
	return float64(time.Since(start).Microseconds()) * float64(workers) / float64(total)
}
