package shards_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

func TestTwoNodesWithOneIdentityOwnNoShardBothAndSaySo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var told [3]atomic.Int64
		config := func(i int) shards.Config {
			return shards.Config{Callbacks: shards.Callbacks{OnError: func(err error) {
				if errors.Is(err, shards.ErrIdentity) {
					told[i].Add(1)
				}
			}}}
		}
		a := g.join("same", config(0))
		c := g.join("other", config(2))
		pass(time.Second)
		b := g.join("same", config(1)) // work checks that no two work on a shard
		pass(settled)
		assert.Len(t, g.works(), 30)
		assert.Len(t, g.store.Owners(), 30)
		for _, m := range []*member{a, b} {
			for _, s := range m.Owned() {
				assert.Equal(t, "same", g.store.Owners()[s.Name])
			}
		}
		assert.Len(t, append(append(a.Owned(), b.Owned()...), c.Owned()...), 30, "each once")
		assert.Equal(t, int64(1), told[1].Load(), "who sees that the other has what is to be its own")
		assert.Zero(t, told[0].Load()+told[2].Load())
		b.end(t)
		pass(settled)
		assert.Equal(t, map[string]int{"same": 15, "other": 15}, g.loads())
		a.end(t)
		c.end(t)
	})
}

func TestANodeWhoseSessionDiedDoesNotTakeItselfForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a := g.join("a", shards.Config{Callbacks: shards.Callbacks{OnError: func(err error) {
			assert.NotErrorIs(t, err, shards.ErrIdentity)
		}}})
		pass(20 * time.Second)
		for range 3 {
			a.backend.Cut()
			pass(20 * time.Second)
			a.backend.Heal()
			pass(20 * time.Second)
			a.backend.Kill(0)
			pass(20 * time.Second)
		}
		assert.Len(t, g.works(), 30)
		a.end(t)
	})
}

func TestAListThatCannotBeReadIsNotTheBackendsFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		failure := errors.New("no table of tenants")
		var reported []error
		var mended atomic.Bool
		a := g.join("a", shards.Config{
			List: func(context.Context) ([]string, error) {
				if !mended.Load() {
					return nil, failure
				}
				return []string{"x"}, nil
			},
			Callbacks: shards.Callbacks{OnError: func(err error) { reported = append(reported, err) }},
		})
		pass(time.Minute)
		require.Len(t, reported, 1, "each reason in a row once")
		require.ErrorIs(t, reported[0], failure)
		require.NotErrorIs(t, reported[0], leader.ErrConnection)
		require.EqualError(t, reported[0], "shards: tenants: listing the shards: no table of tenants")
		assert.Zero(t, a.Stats().Errors, "no call of the backend failed")
		assert.Zero(t, a.Stats().Sessions, "it is no member before it has a list")
		mended.Store(true)
		pass(10 * time.Second)
		assert.Equal(t, map[string]string{"x": "a"}, g.works())
		a.end(t)
	})
}

func TestAFunctionThatDoesNotReturnStopsNoNode(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(){"panics": func() { panic("hostile") }, "ends its goroutine": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				var mu sync.Mutex
				var reported []error
				var mended atomic.Bool
				a := g.join("a", shards.Config{
					List: func(context.Context) ([]string, error) {
						if !mended.Load() {
							end()
						}
						return []string{"x"}, nil
					},
					Callbacks: shards.Callbacks{
						OnError: func(err error) {
							mu.Lock()
							reported = append(reported, err)
							mu.Unlock()
							end()
						},
						OnAcquired: func(shards.Shard) { end() },
					},
				})
				pass(10 * time.Second)
				mu.Lock()
				require.NotEmpty(t, reported)
				require.ErrorIs(t, reported[0], leader.ErrPanic)
				mu.Unlock()
				mended.Store(true)
				pass(time.Minute)
				assert.Equal(t, map[string]string{"x": "a"}, g.works())
				a.end(t)
			})
		})
	}
}

func TestANodeWithoutWorkOwnsNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	n, err := shards.New(shards.Config{Name: "tenants", Backend: g.store.Backend(), Count: 1})
	require.NoError(t, err)
	var wrong *leader.ConfigError
	require.ErrorAs(t, n.Run(t.Context(), nil), &wrong)
	assert.Empty(t, g.store.Owners())
}

func TestANameThatNoBackendCanStoreIsRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	for _, name := range []string{"a\x00b", "\xff"} {
		var wrong *leader.ConfigError
		_, err := shards.New(shards.Config{Name: "tenants", Backend: g.store.Backend(), Shards: []string{name}})
		require.ErrorAs(t, err, &wrong)
		_, err = shards.New(shards.Config{Name: "tenants", Backend: g.store.Backend(), Count: 1, Identity: name})
		require.ErrorAs(t, err, &wrong)
	}
}

// Nobody else takes it: it is tried again here, not for ever given away.
func TestAShardThatWasGivenAwayAndNobodyTakesIsTriedAgain(t *testing.T) {
	t.Parallel()
	for nodes := range 2 {
		t.Run(fmt.Sprint(nodes+1), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				var calls, good atomic.Int64
				work := func(ctx context.Context, _ shards.Shard) error {
					calls.Add(1)
					if good.Load() == 0 {
						return errors.New("it fails")
					}
					<-ctx.Done()
					return nil
				}
				var all []*member
				for i := range nodes + 1 {
					all = append(all, g.joinWith(fmt.Sprint(i), shards.Config{Count: 1, Restart: never{}}, work))
				}
				pass(10 * time.Minute)
				assert.InDelta(t, 9*(nodes+1), calls.Load(), 2+float64(2*nodes), "about once a minute on each")
				good.Store(1)
				pass(settled)
				assert.Len(t, g.store.Owners(), 1)
				for _, m := range all {
					m.end(t)
				}
			})
		})
	}
}

func TestTenNodesBecomeOneAndTenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		config := shards.Config{Count: 100}
		var nodes []*member
		join := func(i int) { nodes = append(nodes, g.join(fmt.Sprint(i), config)) }
		for i := range 10 {
			join(i)
		}
		even := func() {
			loads := g.loads()
			assert.Len(t, loads, 10)
			for identity, n := range loads {
				assert.Equal(t, 10, n, identity)
			}
		}
		pass(10 * time.Second)
		even()
		for _, m := range nodes[1:] {
			m.end(t)
		}
		pass(10 * time.Second)
		assert.Equal(t, map[string]int{"0": 100}, g.loads())
		nodes = nodes[:1]
		for i := range 9 {
			join(10 + i)
		}
		pass(settled)
		even()
		assert.Equal(t, int64(90), nodes[0].Stats().Moved, "nothing moved twice")
		for _, m := range nodes {
			m.end(t)
		}
	})
}

func TestWorkThatEndsItsGoroutineIsGivenAwayUnlessItWasToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		released := 0
		var early atomic.Bool
		early.Store(true)
		a := g.joinWith("a", shards.Config{Count: 1, Callbacks: shards.Callbacks{
			OnReleased: func(shards.Shard) { released++ },
		}}, func(ctx context.Context, _ shards.Shard) error {
			if !early.Swap(false) {
				<-ctx.Done()
			}
			runtime.Goexit()
			return nil
		})
		pass(10 * time.Second)
		assert.Equal(t, int64(1), a.Stats().GaveAway)
		assert.Empty(t, g.store.Owners(), "for a lease, though no other node would claim it")
		pass(settled)
		assert.Len(t, g.store.Owners(), 1, "it is tried again")
		a.end(t)
		assert.Equal(t, int64(1), a.Stats().GaveAway, "not the second time, when the node stopped")
		assert.Equal(t, 2, released)
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for field, spoil := range map[string]func(*shards.Config){
		"Name":           func(c *shards.Config) { c.Name = "" },
		"Backend":        func(c *shards.Config) { c.Backend = nil },
		"Identity":       func(c *shards.Config) { c.Identity = "a\nb" },
		"Shards":         func(c *shards.Config) { c.Shards = []string{"a"} },
		"Count":          func(c *shards.Config) { c.Count = -1 },
		"Weight":         func(c *shards.Config) { c.Weight = shards.MaxWeight + 1 },
		"LeaseDuration":  func(c *shards.Config) { c.LeaseDuration = time.Millisecond },
		"RenewInterval":  func(c *shards.Config) { c.RenewInterval = 1 },
		"RenewTimeout":   func(c *shards.Config) { c.RenewTimeout = -1 },
		"LookInterval":   func(c *shards.Config) { c.LookInterval = 1 },
		"DrainTimeout":   func(c *shards.Config) { c.DrainTimeout = -1 },
		"MovesPerSecond": func(c *shards.Config) { c.MovesPerSecond = -1 },
	} {
		config := shards.Config{Name: "tenants", Backend: shardstest.NewStore().Backend(), Count: 3}
		_, err := shards.New(config)
		require.NoError(t, err)
		spoil(&config)
		_, err = shards.New(config)
		wrong, ok := errors.AsType[*leader.ConfigError](err)
		require.True(t, ok, "%s: %v", field, err)
		assert.Equal(t, field, wrong.Field)
		assert.NotEmpty(t, wrong.Remedy)
	}
	config := shards.Config{Name: "tenants", Backend: shardstest.NewStore().Backend(), Count: 3, RenewInterval: 14 * time.Second}
	_, err := shards.New(config)
	require.ErrorContains(t, err, "must be less than LeaseDuration")
	config.Count, config.RenewInterval = 0, 0
	_, err = shards.New(config)
	require.ErrorContains(t, err, "set one of Shards, Count and List")
}

func TestRunRefusesToRunTwice(t *testing.T) {
	t.Parallel()
	n, err := shards.New(shards.Config{Name: "tenants", Backend: shardstest.NewStore().Backend(), Count: 1, LookInterval: 30 * time.Millisecond})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	begun, done := make(chan struct{}), make(chan error)
	work := func(ctx context.Context, _ shards.Shard) error { begun <- struct{}{}; <-ctx.Done(); return nil }
	for range 2 { // one after the other it may
		ctx, stop := context.WithCancel(ctx)
		go func() { done <- n.Run(ctx, work) }()
		<-begun
		require.ErrorContains(t, n.Run(ctx, work), "runs already")
		stop()
		require.NoError(t, <-done)
	}
	stop()
}
