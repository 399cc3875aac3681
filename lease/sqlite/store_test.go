package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
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

func TestReadersDoNotWaitForWriters(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{BusyTimeout: time.Minute})
	l := acquire(t, s, "job")
	blocker := other(t, path)
	run(t, blocker, "BEGIN IMMEDIATE")
	released := make(chan error, 1)
	go func() { released <- s.Release(context.Background(), l.Claim) }()
	r, err := s.Get(t.Context(), "job")
	require.NoError(t, err)
	require.Equal(t, lease.Held, r.State)
	for r, err := range s.List(t.Context(), lease.ListRequest{}) {
		require.NoError(t, err)
		require.Equal(t, l.ID, r.ID)
	}
	require.Empty(t, released, "the writer was not held up")
	run(t, blocker, "ROLLBACK")
	require.NoError(t, <-released)
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

func TestListCrossesPages(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{Durability: sqlite.Relaxed})
	var wg sync.WaitGroup
	for i := range 1203 {
		wg.Go(func() {
			_, err := s.Acquire(t.Context(), request(fmt.Sprintf("job/%04d", i)))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	acquire(t, s, "job0") // after all with the prefix
	for _, limit := range []int{0, 1, 500, 501, 1000} {
		n := 0
		for r, err := range s.List(t.Context(), lease.ListRequest{Prefix: "job/", After: "job/0002", Limit: limit}) {
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("job/%04d", n+3), r.Name)
			n++
		}
		if limit == 0 {
			limit = 1200
		}
		require.Equal(t, limit, n)
	}
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
