// Package ledgertest has the nodes of a test write guarded transactions, also after the end of their terms, and checks what
// committed.
package ledgertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/leader"
)

// A Ledger is the table of one test.
type Ledger struct{ Pool *pgxpool.Pool }

// New creates the table in a database.
func New(t *testing.T, dsn string) *Ledger {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	return &Ledger{pool}
}

// RequireLegal checks that no write of an ended term committed once another had begun.
func (l *Ledger) RequireLegal(t *testing.T) {
	t.Helper()
	v := l.judge(t)
	t.Logf("%d guarded writes in %d terms", v.Writes, v.Terms)
	assert.Zero(t, v.Stale, "writes of a term after a later one had begun")
	assert.Zero(t, v.Late, "writes after those of a later term, or of a term that began after a later one")
	assert.Zero(t, v.Shared, "terms in which more than one node wrote")
	assert.Positive(t, v.Writes)
}

// RequireDefied checks the counts of Writers whose nodes defied the ends of their terms.
func RequireDefied(t *testing.T, count func(name string) int) {
	t.Helper()
	t.Logf("in ended contexts: %d writes refused, %d committed; in hidden ones, before anybody else led: %d committed",
		count("refused"), count("committed"), count("hidden"))
	assert.Zero(t, count("committed"), "writes in a context that had ended")
	assert.Positive(t, count("refused"), "nobody went on after the end of a term")
}

// Illegal reports whether both checkers have found errors: the control.
func (l *Ledger) Illegal(t *testing.T) bool {
	t.Helper()
	v := l.judge(t)
	t.Logf("control: %d of %d writes are stale, %d by their order", v.Stale, v.Writes, v.Late)
	return v.Stale > 0 && v.Late > 0
}

// A Writer writes the transactions of one node.
type Writer struct {
	Pool *pgxpool.Pool
	Node string
	// InTx runs work in a transaction that is guarded by the term of ctx. nil = the node is reckless.
	InTx func(ctx context.Context, pool *pgxpool.Pool, work func(context.Context, pgx.Tx) error) error
	// Slow is how long a transaction takes at most: the longer it lasts, the more can happen meanwhile.
	Slow time.Duration
	// Trace writes the commits. nil = nothing is written.
	Trace *trace.Writer

	defying                    sync.WaitGroup
	refused, committed, hidden atomic.Int64
}

// Announce says that a term has begun. From then on no older term may write.
func (w *Writer) Announce(ctx context.Context, key string, term leader.Term) error {
	_, err := w.Pool.Exec(ctx, announceSQL, key, int64(term.Uint64()))
	return err
}

// Write is one transaction.
func (w *Writer) Write(ctx context.Context, key string, term leader.Term) error {
	return w.Trace.Commit(ctx, key, term, func(ctx context.Context) error {
		if w.InTx == nil {
			ctx = context.WithoutCancel(ctx)
			return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error { return w.Act(ctx, tx, key, term) })
		}
		return w.InTx(ctx, w.Pool, func(ctx context.Context, tx pgx.Tx) error { return w.Act(ctx, tx, key, term) })
	})
}

// Act is the write of a transaction.
func (w *Writer) Act(ctx context.Context, tx pgx.Tx, key string, term leader.Term) error {
	_, err := tx.Exec(ctx, writeSQL, key, int64(term.Uint64()), w.Node)
	if rand.IntN(4) == 0 {
		_ = pause.For(ctx, rand.N(w.Slow))
	}
	return err
}

// defiance is how long a stubborn node goes on after the end of a term.
const defiance = time.Second

// Defy goes on with transactions when the context of a term ends, on another goroutine: with that context, without it, and
// in another way if that is not nil.
func (w *Writer) Defy(ctx context.Context, key string, term leader.Term, every time.Duration, another func() error) {
	w.defying.Go(func() {
		<-ctx.Done()
		for begin := time.Now(); time.Since(begin) < defiance; _ = pause.For(context.Background(), rand.N(every)) {
			w.count(&w.committed, w.Write(ctx, key, term))
			if another != nil {
				w.count(&w.committed, another())
			}
			// Here the context does not tell, only the server can. It lets the transaction pass as long as the session is
			// not ended, and nobody else leads.
			w.count(&w.hidden, w.Write(context.WithoutCancel(ctx), key, term))
		}
	})
}

func (w *Writer) count(committed *atomic.Int64, err error) {
	switch {
	case err == nil:
		committed.Add(1)
	case errors.Is(err, leader.ErrNotLeader):
		w.refused.Add(1)
	}
}

// Close waits for the end of all defiance, and says what it came to.
func (w *Writer) Close(say func(words ...any)) {
	w.defying.Wait()
	say("count refused", w.refused.Load())
	say("count committed", w.committed.Load())
	say("count hidden", w.hidden.Load())
}
