package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sqlite.Config{{}, {Durability: sqlite.Relaxed, CacheBytes: -1}} {
		t.Run(cfg.Durability.String(), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			paths := make(map[lease.Store]string)
			start := func(t *testing.T, path string) lease.Store {
				t.Helper()
				s := open(t, path, cfg)
				mu.Lock()
				defer mu.Unlock()
				paths[s] = path
				return s
			}
			leasetest.Run(t, leasetest.Harness{
				New: func(t *testing.T) lease.Store {
					t.Helper()
					return start(t, newPath(t))
				},
				Reopen: func(t *testing.T, store lease.Store) lease.Store {
					t.Helper()
					require.NoError(t, store.(*sqlite.Store).Close())
					mu.Lock()
					path := paths[store]
					mu.Unlock()
					return start(t, path)
				},
			})
		})
	}
}

func TestRequestsThatComeTogetherShareATransaction(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{})
	goOn := s.Hold(t.Context())
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			_, err := s.Acquire(t.Context(), request(fmt.Sprint("job/", i)))
			assert.NoError(t, err)
		})
	}
	await.Until(t, await.Soon, func() bool { return s.Waiting() == 100 })
	goOn()
	wg.Wait()
	require.Equal(t, sqlite.Stats{Requests: 101, Transactions: 2}, s.Stats())
}

func TestAContextEndsTheWaitAndDropsWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{BusyTimeout: time.Minute})
	blocker := other(t, path)
	run(t, blocker, "BEGIN IMMEDIATE")
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, request("job"))
		failed <- err
	}()
	tired := errors.New("tired")
	cancel(tired)
	require.ErrorIs(t, <-failed, tired)
	run(t, blocker, "ROLLBACK")
	acquire(t, s, "job")
}

func TestHandOverReleasesAndAcquiresInOneTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{})
	first := acquire(t, s, "job")
	before := s.Stats().Transactions
	next := request("job")
	next.Metadata = map[string]string{"k": "v"}
	second, released, acquired := s.HandOver(t.Context(), lease.ReleaseRequest{Claim: first.Claim}, next)
	require.NoError(t, released)
	require.NoError(t, acquired)
	require.Greater(t, second.Token, first.Token)
	require.Equal(t, next.Metadata, second.Metadata)
	require.Equal(t, before+1, s.Stats().Transactions)
}

func TestCloseFinishesWhatWasAccepted(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	var mu sync.Mutex
	granted := make(map[string]lease.Claim)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for n := 0; ; n++ {
				l, err := s.Acquire(context.Background(), request(fmt.Sprint("job/", i, "/", n)))
				if err != nil {
					assert.ErrorIs(t, err, sqlite.ErrClosed)
					return
				}
				mu.Lock()
				granted[l.Name] = l.Claim
				mu.Unlock()
			}
		})
	}
	await.Until(t, await.Soon, func() bool { return s.Stats().Transactions > 5 })
	require.NoError(t, s.Close())
	wg.Wait()
	require.NoError(t, s.Close())
	_, err := s.Get(t.Context(), "job/0/0")
	require.ErrorIs(t, err, sqlite.ErrClosed)
	_, err = s.Sweep(t.Context(), lease.SweepRequest{})
	require.ErrorIs(t, err, sqlite.ErrClosed)

	s = open(t, path, sqlite.Config{})
	require.NotEmpty(t, granted)
	for name, claim := range granted {
		r, err := s.Get(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, claim, r.Claim)
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		fmt.Println(serveChild(path, os.Getenv(childServe)))
		os.Exit(1)
	}
	if path := os.Getenv(childTry); path != "" {
		if s, err := sqlite.Open(context.Background(), path, sqlite.Config{}); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("opened")
			_ = s.Close()
		}
		os.Exit(0)
	}
	leak.Main(m)
}

func newPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "leases.db")
}

// open opens a store that is closed at the end of the test.
func open(tb testing.TB, path string, cfg sqlite.Config) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), path, cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// other opens the file as another program does.
func other(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(tb, err)
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

func run(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	_, err := db.ExecContext(tb.Context(), query, args...)
	require.NoError(tb, err)
}

func request(name string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: "worker", TTL: time.Hour}
}

func acquire(tb testing.TB, s lease.Store, name string) lease.Lease {
	tb.Helper()
	l, err := s.Acquire(tb.Context(), request(name))
	require.NoError(tb, err)
	return l
}

func command(tb testing.TB, name string, args ...string) {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), name, args...).CombinedOutput()
	require.NoError(tb, err, "%s", out)
}

// The clock of a store shows the time at which it is used, however long opening took:
// else it would jump when the store is opened again, and end leases early.
func TestAClockThatStartedLateIsNotSlow(t *testing.T) {
	t.Parallel()
	slow := func(f *os.File) error {
		<-time.After(300 * time.Millisecond)
		return f.Sync()
	}
	s, err := sqlite.OpenOnVFS(t.Context(), newPath(t), sqlite.Config{}, "", slow)
	require.NoError(t, err)
	before := time.Now()
	l := acquire(t, s, "job")
	require.NoError(t, s.Close())
	require.False(t, l.AcquiredAt.Before(before.Add(-50*time.Millisecond)), "%v behind", before.Sub(l.AcquiredAt))
}

// A clock that was set back while the store was closed starts where it was. Without
// the time that is stored, which the control removes, an expired lease comes back.
func TestAClockThatWasSetBackRevivesNothing(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		path := newPath(t)
		noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		openAt := func(wall time.Time) *sqlite.Store {
			s, err := sqlite.OpenAt(t.Context(), path, sqlite.Config{}, wall)
			require.NoError(t, err)
			return s
		}
		s := openAt(noon)
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
		require.NoError(t, err)
		held := acquire(t, s, "held")
		require.NoError(t, s.Close())

		s = openAt(noon.Add(time.Hour - time.Minute))
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		require.ErrorIs(t, err, lease.ErrExpired, "this is seen, and nothing else is written")
		require.NoError(t, s.Close())

		if forgets {
			run(t, other(t, path), "UPDATE state SET seen_at = 0")
		}
		s = openAt(noon.Add(-24 * time.Hour))
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		if forgets {
			require.NoError(t, err, "the control sees no lease revived")
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, lease.ErrExpired)
		r, err := s.Get(t.Context(), "held")
		require.NoError(t, err)
		require.Less(t, r.Remaining, 2*time.Minute, "a lease was prolonged")
		require.Equal(t, held.ExpiresAt, r.ExpiresAt)
		next := acquire(t, s, "job")
		require.Greater(t, next.Token, l.Token)
		require.NoError(t, s.Close())
	}
}

// Whoever read that a lease has expired does not find it current after the machine
// stopped and its clock was set back. The control: before anybody read it, it may be.
func TestALeaseThatSomebodyReadHasExpiredStaysSo(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	openAt := func(path string, wall time.Time) *sqlite.Store {
		s, err := sqlite.OpenAt(t.Context(), path, sqlite.Config{}, wall)
		require.NoError(t, err)
		return s
	}
	reopened := func(left files) lease.State {
		path := newPath(t)
		left.write(t, path)
		s := openAt(path, noon.Add(-time.Hour))
		r, err := s.Get(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return r.State
	}
	for name, read := range map[string]func(s *sqlite.Store) (lease.State, error){
		"Get": func(s *sqlite.Store) (lease.State, error) {
			r, err := s.Get(t.Context(), "job")
			return r.State, err
		},
		"List": func(s *sqlite.Store) (state lease.State, err error) {
			for r, failed := range s.List(t.Context(), lease.ListRequest{}) {
				state, err = r.State, failed
			}
			return state, err
		},
		"Acquire": func(s *sqlite.Store) (lease.State, error) {
			_, err := s.Acquire(t.Context(), request("job"))
			require.ErrorIs(t, err, lease.ErrHeld, "for the delay")
			return lease.Expired, nil
		},
	} {
		path := newPath(t)
		s := openAt(path, noon)
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute, LockDelay: 3 * time.Hour})
		require.NoError(t, err)
		left := image(t, path)
		require.NoError(t, s.Close())

		// Killed, for a store that is closed stores its time.
		path = newPath(t)
		left.write(t, path)
		s = openAt(path, noon.Add(30*time.Second))
		before := image(t, path)
		s.Advance(time.Hour)
		state, err := read(s)
		require.NoError(t, err)
		require.Equal(t, lease.Expired, state, name)
		after := image(t, path)
		transactions := s.Stats().Transactions
		for range 3 {
			_, err = s.Get(t.Context(), "job")
			require.NoError(t, err)
		}
		require.Equal(t, transactions, s.Stats().Transactions, "only the first costs one")
		require.NoError(t, s.Close())
		require.Equal(t, lease.Held, reopened(before), "the control sees no lease revived")
		require.Equal(t, lease.Expired, reopened(after), name)
	}
}

// The cache may hold one row, or none: decisions are the same.
func TestSmallCachesDecideTheSame(t *testing.T) {
	t.Parallel()
	for _, size := range []int{-1, 1, 2000, 0} {
		s := open(t, newPath(t), sqlite.Config{Durability: sqlite.Relaxed, CacheBytes: size})
		first := make(map[string]uint64)
		for round := range 3 {
			for i := range 20 {
				l := acquire(t, s, fmt.Sprint("job/", i))
				if round == 0 {
					first[l.Name] = l.Token
				}
				require.Equal(t, first[l.Name]+uint64(round), l.Token)
			}
			for i := range 20 {
				r, err := s.Get(t.Context(), fmt.Sprint("job/", i))
				require.NoError(t, err)
				require.NoError(t, s.Release(t.Context(), r.Claim))
			}
		}
	}
}
