//go:build integration

package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/soak"
)

var errEnough = errors.New("enough")

func TestACanceledAcquireReturnsItsCauseAndLeavesNoWaiterAndThoseBehindItWaitOn(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		for _, behind := range []int{0, 1} {
			dsn := pgtest.DSN(t)
			judge := pgtest.Connect(t, dsn)
			holder, l := open(t, dsn, session.DefaultTTL), open(t, dsn, session.DefaultTTL)
			lock := acquire(t, holder, agents.ID(1))
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error)
			go func() {
				_, err := l.Acquire(ctx, agents.ID(1))
				ended <- err
			}()
			requireLocks(t, judge, 1, 1)
			next := make(chan *advisory.Lock, 1)
			if behind > 0 {
				go func() {
					lock, err := l.Acquire(t.Context(), agents.ID(1))
					assert.NoError(t, err)
					next <- lock
				}()
				await.Until(t, patience, func() bool { return l.Stats().Waiting == 2 })
			}
			cancel(errEnough)
			require.ErrorIs(t, <-ended, errEnough)
			requireLocks(t, judge, 1, behind)
			require.NoError(t, lock.Release())
			if behind > 0 {
				require.NoError(t, (<-next).Release())
			}
			requireLocks(t, judge, 0, 0)
		}
	})
}

// A context that ends around the grant: either the caller gets the lock, or
// nothing stays locked. That the same race leaves phantoms with the usual way to
// wait is shown beside the sessions.
func TestWhatAnAcquireReturnsIsWhatTheServerSaysWhenItsContextEndsAroundTheGrant(t *testing.T) {
	lockmode.InTurn(t, func(t *testing.T) {
		t.Helper()
		for name, try := range map[string]bool{"wait": false, "try": true} {
			t.Run(name, func(t *testing.T) {
				dsn := pgtest.DSN(t)
				l := open(t, dsn, session.DefaultTTL)
				r := canceler{t: t, l: l, holder: pgtest.Connect(t, dsn), judge: pgtest.Connect(t, dsn), aim: raceAt, try: try}
				n, held := soak.Size(t, 500, 10_000), 0
				for range n {
					if r.race() {
						held++
					}
				}
				t.Logf("%d races: %d held, %d canceled or busy", n, held, n-held)
				assert.Greater(t, held, n/50, "too few races ended with the lock to say anything")
				assert.Greater(t, n-held, n/50, "too few races ended without the lock to say anything")
				assert.Zero(t, l.Stats().Held)
				assert.Zero(t, l.Stats().Lost)
			})
		}
	})
}

// raceAt is when, after a race's begin, the lock is freed or the try begins.
const raceAt = 2 * time.Millisecond

type canceler struct {
	t             *testing.T
	l             *advisory.Locker
	holder, judge *pgx.Conn
	aim           time.Duration // when the context ends: later after each race without the lock, for a machine of any speed
	try           bool
}

// race returns whether the caller got the lock.
func (r *canceler) race() (held bool) {
	r.t.Helper()
	tag := agents.ID(1).Tag()
	k1, k2, _ := tag.Pair()
	_, err := r.holder.Exec(context.Background(), "SELECT pg_advisory_lock($1::int4, $2::int4)", k1, k2)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	begin := time.Now()
	end := r.aim + rand.N(500*time.Microsecond) - 250*time.Microsecond
	var wg sync.WaitGroup
	wg.Go(func() {
		if !r.try {
			spinUntil(begin.Add(raceAt))
		}
		_, err := r.holder.Exec(context.Background(), "SELECT pg_advisory_unlock($1::int4, $2::int4)", k1, k2)
		assert.NoError(r.t, err)
	})
	wg.Go(func() {
		spinUntil(begin.Add(end))
		cancel(errEnough)
	})
	acquire := r.l.Acquire
	if r.try {
		acquire = r.l.TryAcquire
		spinUntil(begin.Add(raceAt))
	}
	lock, err := acquire(ctx, agents.ID(1))
	wg.Wait()
	if err == nil {
		granted, waiting := locks(r.t, r.judge)
		require.Equal(r.t, 1, granted, "got the lock, and the server says no")
		require.Zero(r.t, waiting)
		require.NoError(r.t, lock.Release())
		r.aim -= r.aim / 30
	} else {
		require.True(r.t, errors.Is(err, errEnough) || r.try && errors.Is(err, advisory.ErrHeld), err)
		r.aim += r.aim / 30
	}
	deadline := time.Now().Add(patience)
	for {
		granted, waiting := locks(r.t, r.judge)
		if granted+waiting == 0 {
			return err == nil
		}
		require.True(r.t, time.Now().Before(deadline), "something stays locked that no handle owns")
	}
}

func spinUntil(at time.Time) {
	for time.Now().Before(at) {
		runtime.Gosched()
	}
}

// While an AcquireAll or AcquireSlot waits for a key of its own process, its
// session carries what it has already and is silent.
func TestALongWaitInsideTheProcessDoesNotEndTheWaitersSession(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		const ttl = 5 * time.Second
		for name, wait := range map[string]func(*testing.T, *advisory.Locker) (*advisory.Lock, error){
			"all": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireAll(t.Context(), agents.ID(1), agents.ID(2))
			},
			"all, first": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireAll(t.Context(), agents.ID(2), agents.ID(9))
			},
			"slot": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireSlot(t.Context(), agents.ID(3), 1)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := open(t, pgtest.DSN(t), ttl)
				locks := []*advisory.Lock{acquire(t, l, agents.ID(2))}
				slot, err := l.AcquireSlot(t.Context(), agents.ID(3), 1)
				require.NoError(t, err)
				locks = append(locks, slot)
				got := make(chan error, 2)
				start := time.Now()
				for range 2 {
					go func() {
						lock, err := wait(t, l)
						if err == nil {
							err = lock.Release()
						}
						got <- err
					}()
				}
				await.Until(t, patience, func() bool { return time.Since(start) > 2*ttl })
				for _, lock := range locks {
					assert.NoError(t, lock.Release())
				}
				require.NoError(t, <-got)
				require.NoError(t, <-got)
			})
		}
	})
}
