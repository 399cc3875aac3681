package postgres_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/postgres"
)

// storm sends a signal function's signal to the sessions of "a" and "b" every
// pause, until stop, which returns how many.
func (j judge) storm(signal string, pause time.Duration) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		wg   sync.WaitGroup
		sent int64
	)
	wg.Go(func() {
		for ctx.Err() == nil {
			tag, _ := j.Pool.Exec(ctx, "SELECT "+signal+"(pid) FROM pg_stat_activity WHERE application_name IN ('a', 'b') AND datname = current_database()")
			sent += tag.RowsAffected()
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(pause)):
			}
		}
	})
	return func() int64 { cancel(); wg.Wait(); return sent }
}

// Whatever statement a signal or the end of a context hits, a candidate that gave
// up holds nothing, and one that leads what a leader holds.
func TestNothingIsLeftLockedWhateverHitsATakeover(t *testing.T) {
	t.Parallel()
	for name, storm := range map[string]struct {
		signal string
		pause  time.Duration
	}{
		"cancel":    {"pg_cancel_backend", 300 * time.Microsecond},
		"terminate": {"pg_terminate_backend", 20 * time.Millisecond},
		"contexts":  {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			judge := newJudge(t, dsn)
			judge.Exec(postgres.Schema(""))
			nodes := map[string]*postgres.Backend{"a": newBackend(t, dsn, nil), "b": newBackend(t, dsn, nil)}
			var led, signals atomic.Int64
			calm := 1 // a busy machine needs more of it to lead at all
			for more := goesOn(t, func() bool { return led.Load() > 0 && (storm.signal == "" || signals.Load() > 0) }); more(); {
				stop := func() int64 { return 0 }
				if storm.signal != "" {
					stop = judge.storm(storm.signal, time.Duration(calm)*storm.pause)
				}
				var wg sync.WaitGroup
				for identity, b := range nodes {
					wg.Go(func() { led.Add(contend(judge.Pool, b, identity, time.Duration(calm)*40*time.Millisecond)) })
				}
				wg.Wait()
				signals.Add(stop())
				if led.Load() == 0 {
					calm++
				}
				judge.Until(func() bool { return judge.locks() == 0 }) // of ended sessions soon
			}
			t.Logf("led %d times, %d signals", led.Load(), signals.Load())
			assert.Positive(t, led.Load())
			assert.Equal(t, storm.signal != "", signals.Load() > 0)
		})
	}
}

// contend makes a few attempts, whose contexts end at random, and gives up.
func contend(pool postgres.Beginner, b *postgres.Backend, identity string, longest time.Duration) (led int64) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(longest))
		ok, err := b.TryAcquire(ctx, identity, ttl)
		switch {
		case ok:
			led++
			_ = postgres.InTx(b.Bind(ctx), pool, func(context.Context, pgx.Tx) error { return b.Renew(ctx, identity, ttl) })
		case err == nil:
			_ = b.Wait(ctx)
		}
		cancel()
		if err != nil || rand.N(2) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(4*time.Millisecond))
			_ = b.Release(ctx, identity)
			cancel()
		}
	}
	_ = b.Release(context.Background(), identity)
	return led
}
