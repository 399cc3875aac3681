package cronlock_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/cronlock"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
)

// The machines of a fleet have zones of their own, and their crons one location.
func TestTheTickIsThatOfTheLocationWhateverTheZoneOfTheMachineIs(t *testing.T) {
	t.Parallel()
	store := leased.New(leasetest.NewStore())
	tick := time.Now().UTC().Truncate(time.Hour)
	ran := 0
	for _, machine := range []*time.Location{time.UTC, time.FixedZone("Kolkata", 5*3600+1800), time.FixedZone("New York", -5*3600)} {
		w, err := cronlock.Once(cronlock.Config{
			Runner: newRunner(t, store, func(c *once.Config) { c.Window = 2 * time.Hour }), Job: "report", Schedule: schedule(t, "0 * * * *"), Logger: cron.DiscardLogger,
			Location: time.UTC, Now: func() time.Time { return tick.In(machine) },
		})
		require.NoError(t, err)
		w(cron.FuncJob(func() { ran++ })).Run()
	}
	assert.Equal(t, 1, ran)
	records, err := store.Look(t.Context(), "report", tick.Add(-24*time.Hour), tick.Add(24*time.Hour))
	require.NoError(t, err)
	require.Len(t, records, 1)
	assert.Equal(t, tick, records[0].Tick)
}
