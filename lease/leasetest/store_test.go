package leasetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, leasetest.Harness{
		New:    func(*testing.T) lease.Store { return leasetest.NewStore() },
		Reopen: func(_ *testing.T, store lease.Store) lease.Store { return store },
	})
}

func TestALeaseEndsToTheNanosecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		acquire := func(holder string) error {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: holder, TTL: time.Hour, LockDelay: time.Minute})
			return err
		}
		require.NoError(t, acquire("a"))
		bubble.Sleep(time.Hour - 1)
		record, err := store.Get(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, lease.Held, record.State)
		assert.Equal(t, time.Nanosecond, record.Remaining)
		bubble.Sleep(time.Nanosecond)
		record, err = store.Get(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, lease.Expired, record.State)
		assert.Equal(t, time.Minute, record.AvailableIn)
		bubble.Sleep(time.Minute - 1)
		require.ErrorIs(t, acquire("b"), lease.ErrHeld)
		bubble.Sleep(time.Nanosecond)
		require.NoError(t, acquire("b"))
	})
}

func TestASweepKeepsANameForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: 2 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, store.Release(t.Context(), l.Claim))
		bubble.Sleep(lease.DefaultRetention - 1)
		result, err := store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.Zero(t, result)
		bubble.Sleep(time.Nanosecond)
		result, err = store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.Equal(t, lease.SweepResult{Removed: 1}, result)
	})
}

func TestMain(m *testing.M) { leak.Main(m) }

// A board is where a faulty store's messages are.
type board struct {
	mu      sync.Mutex
	all     []string
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

func (b *board) since(n int) (messages []string, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all[n:]), b.changed
}

// Send implements lease.Messenger.
func (b *faulty) Send(_ context.Context, messages []string) error {
	messages = slices.Clone(messages)
	switch b.kind {
	case "messages of one sending are turned round":
		slices.Reverse(messages)
	case "long messages are cut":
		for i, m := range messages {
			messages[i] = m[:min(len(m), 1000)]
		}
	}
	b.board.mu.Lock()
	defer b.board.mu.Unlock()
	b.board.all = append(b.board.all, messages...)
	close(b.board.changed)
	b.board.changed = make(chan struct{})
	return nil
}

// Listen implements lease.Messenger.
func (b *faulty) Listen(ctx context.Context, ready func(), receive func(message string)) error {
	before, _ := b.board.since(0)
	n := len(before)
	if b.kind == "old messages are heard" {
		n = 0
	}
	ready()
	for {
		all, changed := b.board.since(n)
		for _, m := range all {
			receive(m)
		}
		n += len(all)
		select {
		case <-changed:
		case <-ctx.Done():
			if b.kind == "the end of a listener is none" {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}
