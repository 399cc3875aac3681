package shards_test

import (
	"context"
	"errors"
	"strconv"
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

// unowned is how long shards had no owner, at most and in all, while time passed.
func (g *group) unowned(d time.Duration, count int) (longest, total time.Duration) {
	const step = 500 * time.Millisecond
	now := map[string]time.Duration{}
	for range d / step {
		pass(step)
		owners := g.store.Owners()
		for name := range all(count) {
			if now[name] += step; owners[name] != "" {
				now[name] = 0
				continue
			}
			total += step
			longest = max(longest, now[name])
		}
	}
	return longest, total
}

func all(count int) map[string]bool {
	names := map[string]bool{}
	for i := range count {
		names[strconv.Itoa(i)] = true
	}
	return names
}

// Work that ignores its context goes on when its shard was released after DrainTimeout: the node cannot claim it again.
func TestAShardWhoseEarlierWorkGoesOnIsNotGivenBackToTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		config := shards.Config{DrainTimeout: 3 * time.Second}
		a, b := g.join("a", config), g.join("b", config)
		hang := make(chan struct{})
		h := g.joinWith("h", config, func(ctx context.Context, _ shards.Shard) error {
			<-hang // whatever becomes of ctx
			<-ctx.Done()
			return nil
		})
		pass(settled)
		require.Len(t, h.Owned(), 10)
		require.NoError(t, a.backend.Drain(t.Context(), "h", true))
		pass(settled)
		require.Empty(t, h.Owned())
		moved := func() int64 { return a.Stats().Moved + b.Stats().Moved }
		before := moved()
		require.NoError(t, a.backend.Drain(t.Context(), "h", false))
		longest, _ := g.unowned(10*time.Minute, 30)
		assert.LessOrEqual(t, longest, time.Second)
		assert.Equal(t, int64(10), moved()-before, "it gets its part of those that it can claim, once")
		assert.Len(t, h.Owned(), 10)
		close(hang)
		pass(settled)
		assert.Equal(t, int64(10), moved()-before)
		for _, m := range []*member{a, b, h} {
			m.end(t)
		}
	})
}

func TestAPinKeepsAShardThatFailsOnItsNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var good atomic.Bool
		var calls atomic.Int64
		work := func(ctx context.Context, s shards.Shard) error {
			if s.Name == "7" && !good.Load() {
				calls.Add(1)
				return errors.New("it fails")
			}
			<-ctx.Done()
			return nil
		}
		good.Store(true)
		var kept []error
		config := shards.Config{Restart: never{}}
		a := g.joinWith("a", config, work)
		config.Callbacks.OnError = func(err error) { kept = append(kept, err) }
		b := g.joinWith("b", config, work)
		pass(settled)
		require.NoError(t, a.backend.Pin(t.Context(), "7", "b"))
		pass(settled)
		require.Equal(t, "b", g.store.Owners()["7"])
		good.Store(false)
		a.SetWeight(shards.DefaultWeight) // nothing changes
		require.True(t, a.backend.Kill(0) || a.backend.Kill(1))
		for b.backend.Kill(0) { // the work begins again, and fails from now on
		}
		pass(10 * time.Second)
		for range 100 {
			pass(3 * time.Second)
			assert.Equal(t, "b", g.store.Owners()["7"])
		}
		assert.InDelta(t, 5, calls.Load(), 2, "about once a minute")
		require.NotEmpty(t, kept)
		assert.ErrorContains(t, kept[len(kept)-1], "shards: 7 of tenants stays here, because it is pinned to this node: its work begins again in 1m0s: it fails")
		assert.Zero(t, b.Stats().GaveAway)

		require.NoError(t, a.backend.Pin(t.Context(), "7", ""))
		good.Store(true)
		pass(10 * time.Second)
		assert.Equal(t, "a", g.store.Owners()["7"], "without the pin it is given away")
		assert.Equal(t, int64(1), b.Stats().GaveAway)
		require.NoError(t, a.backend.Pin(t.Context(), "7", "b"))
		pass(10 * time.Second)
		assert.Equal(t, "b", g.store.Owners()["7"], "a pin overrules that its work failed there")
		a.end(t)
		b.end(t)
	})
}

// The last node keeps it, so that only hand-overs leave it without an owner.
func TestAShardThatFailsEverywhereIsOwnedButForHandOvers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var good atomic.Bool
		good.Store(true)
		var calls atomic.Int64
		work := func(ctx context.Context, s shards.Shard) error {
			if s.Name == "7" && !good.Load() {
				calls.Add(1)
				return errors.New("it fails")
			}
			<-ctx.Done()
			return nil
		}
		var nodes []*member
		for _, identity := range []string{"a", "b", "c"} {
			nodes = append(nodes, g.joinWith(identity, shards.Config{LeaseDuration: 3 * time.Second, Restart: never{}}, work))
		}
		pass(settled)
		good.Store(false)
		for _, m := range nodes {
			for m.backend.Kill(0) {
			}
		}
		pass(3 * time.Second)
		before := calls.Load()
		longest, total := g.unowned(10*time.Minute, 30)
		assert.LessOrEqual(t, longest, 4*time.Second, "T, and a look")
		assert.LessOrEqual(t, total, 30*time.Second)
		assert.InDelta(t, 30, calls.Load()-before, 12, "each node tries it about once a minute")
		for name, owner := range g.store.Owners() {
			assert.NotEmpty(t, owner, name)
		}
		good.Store(true)
		pass(settled)
		assert.Len(t, g.store.Owners(), 30)
		for _, m := range nodes {
			m.end(t)
		}
	})
}

// An unclaiming backend is one whose claims fail, as if its role had lost the right to write.
type unclaiming struct {
	*shardstest.Backend
	fails *atomic.Bool
}

func (b unclaiming) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return unclaimingSession{s, b.fails}, err
}

type unclaimingSession struct {
	driver.Session
	fails *atomic.Bool
}

func (s unclaimingSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	if s.fails.Load() {
		return nil, errors.New("no right to claim")
	}
	return s.Session.Claim(ctx, names)
}

func TestANodeWhoseClaimsFailGetsNothingUntilOneSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a, b := g.join("a", shards.Config{}), g.join("b", shards.Config{})
		pass(settled)
		backend := unclaiming{g.store.Backend(), &atomic.Bool{}}
		backend.fails.Store(true)
		u, err := shards.New(shards.Config{Name: "tenants", Identity: "u", Backend: backend, Count: 30})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx, g.work("u")) }()
		pass(settled)
		longest, _ := g.unowned(20*time.Minute, 30)
		assert.Zero(t, longest, "after the first shards that it was given in vain")
		assert.Equal(t, map[string]int{"a": 15, "b": 15}, g.loads())
		backend.fails.Store(false)
		pass(settled)
		assert.Equal(t, map[string]int{"a": 10, "b": 10, "u": 10}, g.loads(), "it finds out by itself")
		stop()
		require.NoError(t, <-done)
		a.end(t)
		b.end(t)
	})
}
