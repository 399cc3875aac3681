package shards_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// A narrow backend gives up claims of more than so many names.
type narrow struct {
	*shardstest.Backend
	most    atomic.Int64
	slow    atomic.Int64 // claims that it gave up
	refused atomic.Bool  // the node has announced that it can claim nothing
}

func (b *narrow) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return narrowSession{s, b}, err
}

type narrowSession struct {
	driver.Session
	backend *narrow
}

func (s narrowSession) Announce(ctx context.Context, self driver.Member) error {
	if self.Refuses != "" {
		s.backend.refused.Store(true)
	}
	return s.Session.Announce(ctx, self)
}

func (s narrowSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	if int64(len(names)) > s.backend.most.Load() {
		s.backend.slow.Add(1)
		return nil, driver.ErrSlow
	}
	return s.Session.Claim(ctx, names)
}

func TestANodeClaimsFewerShardsAtOnceWhereClaimsAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &narrow{Backend: shardstest.NewStore().Backend()}
		b.most.Store(6)
		node, err := shards.New(shards.Config{Name: "tenants", Backend: b, Count: 200})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		}()
		pass(2 * time.Minute)
		assert.Len(t, node.Owned(), 200)
		assert.NotZero(t, b.slow.Load(), "the control: it claimed more at once")
		assert.False(t, b.refused.Load(), "it refuses nothing")
		assert.Zero(t, node.Stats().Lost)

		b.most.Store(0)
		for b.Kill(0) { // its shards are lost, and cannot be claimed again
		}
		pass(2 * time.Minute)
		assert.Less(t, len(node.Owned()), 200)
		assert.True(t, b.refused.Load(), "what it cannot claim one by one it refuses")
		b.most.Store(1000)
		pass(2 * time.Minute)
		assert.Len(t, node.Owned(), 200)
		stop()
		require.NoError(t, <-done)
	})
}

// A busy backend opens a session only for those who wait for it.
type busy struct {
	*shardstest.Backend
	takes    time.Duration
	attempts atomic.Int64
}

func (b *busy) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	b.attempts.Add(1)
	s, err := b.Backend.Open(ctx, self, ttl) // the server's lease begins with the call
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(b.takes):
		return s, nil
	case <-ctx.Done():
		_ = s.Close()
		return nil, context.Cause(ctx)
	}
}

// With a fixed bound of RenewTimeout, the node would never own a shard.
func TestANodeWaitsLongerForASessionWhereTheServerIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Backend: shardstest.NewStore().Backend(), takes: 14 * time.Second} // of 15 s: only a renewal makes the session last
		node, err := shards.New(shards.Config{Name: "tenants", Backend: b, Count: 20})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
				<-ctx.Done()
				return nil
			})
		}()
		pass(5 * time.Minute)
		assert.Len(t, node.Owned(), 20)
		assert.Zero(t, node.Stats().Lost)
		assert.LessOrEqual(t, b.attempts.Load(), int64(6), "two sessions, three attempts each")
		stop()
		require.NoError(t, <-done)
	})
}
