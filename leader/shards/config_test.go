package shards_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

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
