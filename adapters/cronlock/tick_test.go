package cronlock_test

import (
	"context"
	"errors"
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

func schedule(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	s, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(spec)
	require.NoError(t, err)
	return s
}

func tickOf(t *testing.T, s cron.Schedule, now time.Time) time.Time {
	t.Helper()
	tick, err := cronlock.TickOf(s, now)
	require.NoError(t, err)
	return tick
}

// A timer may be late until the next tick: then the job is run as that, and Missed names the one before.
func TestATimerMayBeLateUntilTheNextTick(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, spec := range []string{"*/5 * * * *", "@every 5m"} {
		s := schedule(t, spec)
		for late, wanted := range map[time.Duration]time.Time{
			0:                   tick,
			time.Second:         tick,
			5*time.Minute - 1:   tick,
			5 * time.Minute:     tick.Add(5 * time.Minute), // beyond
			-time.Nanosecond:    tick.Add(-5 * time.Minute),
			7 * time.Minute / 2: tick,
		} {
			assert.Equal(t, wanted, tickOf(t, s, tick.Add(late)), "%s, %v late", spec, late)
		}
	}
}

func TestATickIsItsOwnInEachScheduleAndThroughDaylightSavingTime(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo"} {
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, spec := range []string{"* * * * *", "30 * * * *", "30 2 * * *", "0 0 * * *", "15 1 * * 0", "0 3 1 * *", "@yearly", "@hourly", "0 */7 * * *"} {
			s := schedule(t, spec)
			for _, start := range []time.Time{
				time.Date(2026, 3, 28, 20, 0, 0, 0, location), time.Date(2026, 10, 24, 20, 0, 0, 0, location), time.Date(2026, 10, 31, 20, 0, 0, 0, location),
				time.Date(2018, 11, 3, 20, 0, 0, 0, location), time.Date(2026, 4, 4, 8, 0, 0, 0, location),
			} {
				next := s.Next(start)
				for range 5 {
					assert.Equal(t, next, tickOf(t, s, next), "%s in %s", spec, zone)
					after := s.Next(next)
					assert.Equal(t, next, tickOf(t, s, after.Add(-1)), "%s in %s, late until the next one", spec, zone)
					next = after
				}
			}
		}
	}
}

func TestAScheduleWithoutTicksIsRefused(t *testing.T) {
	t.Parallel()
	_, err := cronlock.TickOf(schedule(t, "0 0 30 2 *"), time.Now())
	require.ErrorIs(t, err, cronlock.ErrNoTick)
	r := newRunner(t, leased.New(leasetest.NewStore()), nil)
	for _, c := range []cronlock.Config{{}, {Runner: r}, {Runner: r, Schedule: cron.Every(time.Minute)}} {
		_, err := cronlock.Once(c)
		require.ErrorIs(t, err, once.ErrInvalid)
	}
}

func newRunner(t *testing.T, store once.Store, change func(*once.Config)) *once.Runner {
	t.Helper()
	c := once.Config{Store: store}
	if change != nil {
		change(&c)
	}
	r, err := once.New(c)
	require.NoError(t, err)
	return r
}

// A log keeps what is logged.
type log struct{ infos, errors chan string }

func newLog() log { return log{make(chan string, 10), make(chan string, 10)} }

func (l log) Info(text string, _ ...any)             { l.infos <- text }
func (l log) Error(err error, text string, _ ...any) { l.errors <- text + ": " + err.Error() }

func TestTheLogSaysWhatBecameOfATick(t *testing.T) {
	t.Parallel()
	store := leased.New(leasetest.NewStore())
	now := time.Now().Truncate(time.Minute)
	cause := errors.New("no paper")
	wrap := func(change func(*cronlock.Config)) (cron.JobWrapper, log) {
		l := newLog()
		c := cronlock.Config{Runner: newRunner(t, store, nil), Job: "report", Schedule: schedule(t, "* * * * *"), Logger: l, Now: func() time.Time { return now }}
		if change != nil {
			change(&c)
		}
		w, err := cronlock.Once(c)
		require.NoError(t, err)
		return w, l
	}
	ran := 0
	w, l := wrap(nil)
	w(cron.FuncJob(func() { ran++ })).Run()
	assert.Equal(t, 1, ran)
	w(cron.FuncJob(func() { ran++ })).Run()
	assert.Equal(t, 1, ran)
	assert.Equal(t, "job was run elsewhere", <-l.infos)

	now = now.Add(-time.Minute)
	w(cronlock.Func(func(ctx context.Context) error {
		claim, ok := once.ClaimOf(ctx)
		assert.True(t, ok)
		assert.Equal(t, now.UTC(), claim.Tick)
		return cause
	})).Run()
	assert.Equal(t, "job did not end well: no paper", <-l.errors)
	records, err := store.Look(t.Context(), "report", now, now)
	require.NoError(t, err)
	assert.Equal(t, once.Failed, records[0].State)

	w, l = wrap(func(c *cronlock.Config) { c.Now = func() time.Time { return now.Add(-2 * time.Hour) } })
	w(cron.FuncJob(func() { t.Error("it ran") })).Run()
	assert.Contains(t, <-l.errors, "job was not run: once: report of")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w, l = wrap(func(c *cronlock.Config) { c.Context = ctx })
	w(cron.FuncJob(func() { t.Error("it ran") })).Run()
	assert.Contains(t, <-l.errors, "job was not run")
}

// The wrapper is one of a chain, wherever it stands in it.
func TestOnceIsOneWrapperOfAChain(t *testing.T) {
	t.Parallel()
	store := leased.New(leasetest.NewStore())
	now := time.Now().Truncate(time.Minute)
	w, err := cronlock.Once(cronlock.Config{
		Runner: newRunner(t, store, nil), Job: "report", Schedule: schedule(t, "* * * * *"), Logger: cron.DiscardLogger, Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	for _, chain := range []cron.Chain{
		cron.NewChain(cron.Recover(cron.DiscardLogger), w), cron.NewChain(w, cron.Recover(cron.DiscardLogger)),
		cron.NewChain(cron.SkipIfStillRunning(cron.DiscardLogger), w, cron.DelayIfStillRunning(cron.DiscardLogger)),
	} {
		ran := 0
		job := chain.Then(cron.FuncJob(func() { ran++; panic("stop") }))
		for range 2 {
			func() {
				defer func() { _ = recover() }()
				job.Run()
			}()
		}
		assert.Equal(t, 1, ran, "a job that panics is not run again for its tick")
		now = now.Add(-time.Minute)
	}
}

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
