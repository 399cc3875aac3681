package gocronlock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/once"
)

// gocron says that a job failed, and not for which tick.
func TestAFailureIsNotNotedForAnotherTickOfTheJobThatRuns(t *testing.T) {
	t.Parallel()
	store := memory()
	cause := errors.New("no paper")
	f := newFixture(t, newRunner(t, store, func(c *once.Config) { c.Retry = func(error) bool { return true } }), time.Now().UTC().Truncate(time.Minute).Add(-2*time.Minute+time.Second))
	var runs atomic.Int32
	began := make(chan struct{}, 2)
	first, second := make(chan error), make(chan error)
	f.job(t, gocron.CronJob("* * * * *", false), func() error {
		result := first
		if runs.Add(1) == 2 {
			result = second
		}
		began <- struct{}{}
		return <-result
	})
	for range 2 {
		require.NoError(t, planned(t.Context(), f.report, f.clock))
		f.clock.Advance(time.Minute)
		<-began
	}
	first <- cause
	require.ErrorIs(t, <-f.events, cause)
	second <- nil
	require.NoError(t, <-f.events)
	require.NoError(t, f.StopJobs()) // after Unlock
	records, err := store.Look(t.Context(), "report", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Len(t, records, 2)
	assert.Equal(t, once.Ran, records[1].State, "of the second tick, whose run did not fail")
}
