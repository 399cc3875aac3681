package leader_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestAConfigThatCannotWorkNamesFieldValueAndRemedy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*leader.Config)
		field  string
		says   string
	}{
		{"no name", func(c *leader.Config) { c.Name = "" }, "Name", `"": name the election`},
		{"no backend", func(c *leader.Config) { c.Backend = nil }, "Backend", "leader/postgres"},
		{"an identity that breaks lines", func(c *leader.Config) { c.Identity = "a\nb" }, "Identity", `"a\nb"`},
		{"a lease that is too short", func(c *leader.Config) { c.LeaseDuration = time.Millisecond }, "LeaseDuration", "1ms: use 500ms"},
		{"a lease that is too long", func(c *leader.Config) { c.LeaseDuration = 25 * time.Hour }, "LeaseDuration", "24h"},
		{"a lease without an end", func(c *leader.Config) { c.LeaseDuration = -1 }, "LeaseDuration", "-1ns"},
		{"a negative interval", func(c *leader.Config) { c.RenewInterval = -1 }, "RenewInterval", "-1ns"},
		{"a negative timeout", func(c *leader.Config) { c.RenewTimeout = -1 }, "RenewTimeout", "-1ns"},
		{"an interval without its unit", func(c *leader.Config) { c.RenewInterval = 5 }, "RenewInterval", "5ns: use 10ms at least"},
		{"a timeout without its unit", func(c *leader.Config) { c.RenewTimeout = 5 }, "RenewTimeout", "5ns: use 10ms at least"},
		{"a drain on loss without bounds", func(c *leader.Config) { c.LossDrain = math.MaxInt64 }, "LeaseDuration", "shorten one"},
		{"a negative grace", func(c *leader.Config) { c.ReconnectGrace = -1 }, "ReconnectGrace", "-1ns"},
		{"a negative drain", func(c *leader.Config) { c.DrainTimeout = -1 }, "DrainTimeout", "-1ns"},
		{"a negative settle delay", func(c *leader.Config) { c.SettleDelay = -1 }, "SettleDelay", "-1ns"},
		{"a negative number of failures", func(c *leader.Config) { c.MaxRenewFailures = -1 }, "MaxRenewFailures", "-1"},
		{
			"renewals that come too late", func(c *leader.Config) { c.RenewInterval = 10 * time.Second }, "LeaseDuration",
			"LossDrain 1.5s + RenewInterval 10s + RenewTimeout 5s = 16.5s, which must be less than LeaseDuration 15s - margin 1.5s = 13.5s",
		},
		{
			"a drain on loss that leaves no time", func(c *leader.Config) { c.LossDrain = 5 * time.Second }, "LeaseDuration",
			"LossDrain 5s + RenewInterval 5s + RenewTimeout 5s = 15s",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()}
			c.change(&config)
			_, err := leader.New(config)
			var wrong *leader.ConfigError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, c.field, wrong.Field)
			assert.ErrorContains(t, err, c.field)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestAnyDrainTimeoutFitsAnyLease(t *testing.T) {
	t.Parallel()
	_, err := leader.New(leader.Config{
		Name: "scheduler", Backend: leadertest.NewElection().Backend(), LeaseDuration: driver.MinLeaseDuration, DrainTimeout: time.Hour,
		LossDrain: -1,
	})
	require.NoError(t, err)
}

func TestADefaultIdentityIsNewEachTimeAndNamesTheHost(t *testing.T) {
	t.Parallel()
	identity := func() string {
		e, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
		require.NoError(t, err)
		return e.Config().Identity
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	a, b := identity(), identity()
	assert.NotEqual(t, a, b)
	assert.True(t, strings.HasPrefix(a, host+"-"), a)
}
