package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/postgres"
)

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
