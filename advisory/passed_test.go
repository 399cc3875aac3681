package advisory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
)

// A thief has a session that waits for a lock until another one has ended that of its
// holder.
type thief struct {
	t         *testing.T
	has, ends *pgx.Conn
}

func newThief(t *testing.T, dsn string) thief {
	t.Helper()
	connect := func() *pgx.Conn {
		conn := pgtest.Connect(t, dsn)
		return conn
	}
	return thief{t, connect(), connect()}
}

// steals ends the session of the Locker's only lock, for which nobody else waits at the
// server, and returns when it has the lock.
func (th thief) steals(l *advisory.Locker, entity int64) {
	th.t.Helper()
	has := make(chan error, 1)
	go func() {
		_, err := th.has.Exec(th.t.Context(), "SELECT pg_advisory_lock(1, $1)", entity)
		has <- err
	}()
	th.waits(entity)
	_, err := th.ends.Exec(th.t.Context(), "SELECT pg_terminate_backend($1)", pidOf(th.t, l))
	require.NoError(th.t, err)
	require.NoError(th.t, <-has)
}

// waits blocks until somebody waits for the lock at the server.
func (th thief) waits(entity int64) {
	th.t.Helper()
	eventually(th.t, func() (waits bool) {
		require.NoError(th.t, th.ends.QueryRow(th.t.Context(), `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory'
			AND NOT granted AND objid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, entity).Scan(&waits))
		return waits
	})
}

func (th thief) unlocks() {
	th.t.Helper()
	_, err := th.has.Exec(th.t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(th.t, err)
}

func TestALockThatAnotherSessionHasIsNotPassedOn(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		th := newThief(t, dsn)
		l := open(t, advisory.Config{DSN: dsn, HandOverBudget: time.Hour, Wait: advisory.NoTimeout})
		for entity := range soak.Size[int64](t, 8, 20) {
			var waiter chan acquired
			err := l.Do(t.Context(), agents.ID(entity), func(context.Context) error {
				waiter = beginAcquire(t, l, entity)
				th.steals(l, entity)
				return nil // its work is done, while another session has the lock
			})
			require.ErrorIs(t, err, advisory.ErrLost)
			th.waits(entity)
			require.Empty(t, waiter, "the waiter was granted a lost lock")
			th.unlocks()
			next := <-waiter
			require.NoError(t, next.err)
			require.NoError(t, next.lock.Release())
		}
		assert.Zero(t, l.Stats().HandOvers)
	})
}

func TestAReaderWhomOthersOutlastIsToldThatAWriterCame(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		th := newThief(t, dsn)
		l := open(t, advisory.Config{DSN: dsn, HandOverBudget: time.Hour, Wait: advisory.NoTimeout})
		readers := l.With(advisory.Options{Shared: true})
		for entity := range soak.Size[int64](t, 8, 20) {
			var locks []*advisory.Lock
			for range 3 {
				lock, err := readers.Acquire(t.Context(), agents.ID(entity))
				require.NoError(t, err)
				locks = append(locks, lock)
			}
			th.steals(l, entity)
			for _, lock := range locks {
				require.ErrorIs(t, lock.Release(), advisory.ErrLost)
			}
			th.unlocks()
		}
	})
}

func TestAReaderDoesNotJoinALockThatAWriterHas(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		th := newThief(t, dsn)
		l := open(t, advisory.Config{DSN: dsn, HandOverBudget: time.Hour, Wait: advisory.NoTimeout}).With(advisory.Options{Shared: true})
		for entity := range soak.Size[int64](t, 8, 20) {
			lock, err := l.Acquire(t.Context(), agents.ID(entity))
			require.NoError(t, err)
			th.steals(l, entity)
			joined := make(chan acquired, 1)
			go func() {
				lock, err := l.Acquire(t.Context(), agents.ID(entity))
				joined <- acquired{lock, err}
			}()
			th.waits(entity)
			require.ErrorIs(t, lock.Release(), advisory.ErrLost)
			require.Empty(t, joined)
			th.unlocks()
			second := <-joined
			require.NoError(t, second.err)
			require.NoError(t, second.lock.Release())
		}
	})
}

func TestReadersThatLeaveTogetherGiveTheLockBack(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		th := newThief(t, dsn)
		l := open(t, advisory.Config{DSN: dsn, HandOverBudget: time.Hour})
		l.DistrustSessions()
		for range soak.Size(t, 15, 50) {
			var leave sync.WaitGroup
			var locks []*advisory.Lock
			for range 8 {
				lock, err := l.With(advisory.Options{Shared: true}).Acquire(t.Context(), agents.ID(1))
				require.NoError(t, err)
				locks = append(locks, lock)
			}
			for _, lock := range locks {
				leave.Go(func() { assert.NoError(t, lock.Release()) })
			}
			leave.Wait()
			_, err := th.has.Exec(t.Context(), "SELECT pg_advisory_lock(1, 1)")
			require.NoError(t, err)
			th.unlocks()
		}
	})
}

type acquired struct {
	lock *advisory.Lock
	err  error
}

// beginAcquire acquires in the background, behind somebody of this process.
func beginAcquire(t *testing.T, l *advisory.Locker, entity int64) chan acquired {
	t.Helper()
	result := make(chan acquired, 1)
	before := l.Stats().Waiting
	go func() {
		lock, err := l.Acquire(t.Context(), agents.ID(entity))
		result <- acquired{lock, err}
	}()
	eventually(t, func() bool { return l.Stats().Waiting > before })
	return result
}

// A claim is a critical section for which Do returned nil.
type claim struct{ from, to time.Time }

// overlaps counts the claims that began before another one had ended.
func overlaps(claims []claim) (n int, longest time.Duration) {
	slices.SortFunc(claims, func(a, b claim) int { return a.from.Compare(b.from) })
	var last time.Time
	for _, c := range claims {
		if over := last.Sub(c.from); over > 0 {
			n, longest = n+1, max(longest, over)
		}
		if c.to.After(last) {
			last = c.to
		}
	}
	return n, longest
}

// A storm is two Lockers that work on a few keys, while one in three critical sections
// ends the session that its lock lives on.
type storm struct {
	t       *testing.T
	work    *pgxpool.Pool
	kills   atomic.Int64 // that are left
	entered [stormKeys]atomic.Int64

	mu     sync.Mutex
	claims [stormKeys][]claim
	lost   int
}

const stormKeys = 3

// section works under the lock, and does not look. If it ends its session, it goes on
// until somebody else is in, or it is told.
func (s *storm) section(ctx context.Context, l *advisory.Locker, key int) claim {
	c, in := claim{from: time.Now()}, s.entered[key].Add(1)
	<-time.After(time.Millisecond) // works
	if rand.N(3) == 0 {
		for h := range l.Held() {
			if h.Keys[0] == agents.ID(int64(key)) {
				_, err := s.work.Exec(s.t.Context(), "SELECT pg_terminate_backend($1)", h.PID)
				assert.NoError(s.t, err)
				s.kills.Add(-1)
			}
		}
		for s.entered[key].Load() == in && ctx.Err() == nil {
			runtime.Gosched()
		}
	}
	c.to = time.Now()
	return c
}

// run returns how many critical sections overlapped although both were told that all
// was well.
func (s *storm) run(prepare func(*advisory.Locker)) (overlapping int) {
	s.t.Helper()
	dsn := pgtest.DSN(s.t)
	s.work = dbtest.Pool(s.t, dsn)
	defer s.work.Close() // the next storm needs the server's connections
	s.kills.Store(soak.Size[int64](s.t, 40, 100))
	var wg sync.WaitGroup
	for range 2 {
		l := open(s.t, advisory.Config{DSN: dsn, Wait: advisory.NoTimeout, HandOverBudget: time.Hour})
		defer l.Close()
		prepare(l)
		for i := range 4 * stormKeys {
			wg.Go(func() {
				for s.kills.Load() > 0 {
					s.do(l, i%stormKeys)
				}
			})
		}
	}
	wg.Wait()
	clean, longest := 0, time.Duration(0)
	for key := range s.claims {
		n, worst := overlaps(s.claims[key])
		clean, overlapping, longest = clean+len(s.claims[key]), overlapping+n, max(longest, worst)
	}
	s.t.Logf("%d critical sections were told that all was well, %d of a loss; %d of the former overlap, the longest by %v",
		clean, s.lost, overlapping, longest)
	require.Positive(s.t, s.lost)
	return overlapping
}

func (s *storm) do(l *advisory.Locker, key int) {
	var c claim
	err := l.Do(s.t.Context(), agents.ID(int64(key)), func(ctx context.Context) error {
		c = s.section(ctx, l, key)
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.claims[key] = append(s.claims[key], c)
	case errors.Is(err, advisory.ErrLost):
		s.lost++
	}
}

func TestNoTwoAreToldThatAllWasWellWhileSessionsEnd(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		s := &storm{t: t}
		assert.Zero(t, s.run(func(*advisory.Locker) {}))
	})
}

func TestSomeAreToldThatAllWasWellIfNobodyLooks(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for found, storms := 0, 0; found == 0; storms++ {
			require.Less(t, storms, 100)
			s := &storm{t: t}
			found += s.run((*advisory.Locker).TrustSessions)
		}
	})
}
