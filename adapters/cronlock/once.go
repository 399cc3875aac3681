package cronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/pglatch/pglatch/once"
)

// A Config sets how a job is run once per tick. Runner, Job and Schedule are required.
type Config struct {
	Runner *once.Runner

	// Job is the name of the job, the same on all nodes.
	Job string

	// Schedule is the schedule of the job in the cron.Cron, in the same location on all nodes.
	Schedule cron.Schedule

	// Location is the location of the cron.Cron, for schedules without CRON_TZ: Cron.Location returns it. nil = that of
	// Now, which is time.Local, as for cron.New.
	Location *time.Location

	// Context is for the claims and for the job, if it is a Func. If it ends, the job is cut short.
	// nil = context.Background().
	Context context.Context //nolint:containedctx // cron has none

	// Logger receives the reason why a job was not run or failed (Error), and the news that it was run elsewhere
	// (Info). nil = cron.DefaultLogger.
	Logger cron.Logger

	// Now is the clock of this node's cron. nil = time.Now.
	Now func() time.Time
}

// A Func is a job with a context and an error. The context ends when the claim on its tick is lost; once.ClaimOf finds
// the tick and the token in it. The error is recorded. Pass a Func to Once directly: behind another JobWrapper, its
// context does not end with the claim, and its error is dropped.
type Func func(ctx context.Context) error

// Run calls the function outside of Once. Its error is dropped.
func (f Func) Run() { _ = f(context.Background()) }

// Once returns a cron.JobWrapper that runs each tick of one job on one of all nodes whose Runners use the same store.
// Its error is a *once.InvalidError for a field that is out of bounds.
func Once(c Config) (cron.JobWrapper, error) {
	switch {
	case c.Runner == nil:
		return nil, &once.InvalidError{Field: "Config.Runner", Value: "nil", Remedy: "make one with once.New"}
	case c.Schedule == nil:
		return nil, &once.InvalidError{Field: "Config.Schedule", Value: "nil", Remedy: "give that of the job, such as cron.ParseStandard(spec)"}
	}
	if err := once.ValidateJob(c.Job); err != nil {
		return nil, err
	}
	if c.Context == nil {
		c.Context = context.Background()
	}
	if c.Logger == nil {
		c.Logger = cron.DefaultLogger
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return func(job cron.Job) cron.Job { return cron.FuncJob(func() { c.run(job) }) }, nil
}

func (c Config) run(job cron.Job) {
	now := c.Now()
	if c.Location != nil {
		now = now.In(c.Location)
	}
	tick, err := TickOf(c.Schedule, now)
	if err != nil {
		c.Logger.Error(err, "job was not run", "job", c.Job)
		return
	}
	result, err := c.Runner.Do(c.Context, c.Job, tick, func(ctx context.Context) error {
		if f, ok := job.(Func); ok {
			return f(ctx)
		}
		job.Run()
		return nil
	})
	switch {
	case err != nil && !result.Did:
		c.Logger.Error(err, "job was not run", "job", c.Job, "tick", tick)
	case err != nil:
		c.Logger.Error(err, "job did not end well", "job", c.Job, "tick", tick, "state", result.State)
	case !result.Did:
		c.Logger.Info("job was run elsewhere", "job", c.Job, "tick", tick, "state", result.State, "node", result.Node)
	}
}

// ErrNoTick means that a schedule has no tick before the current time.
var ErrNoTick = errors.New("cronlock: the schedule has had no tick for a year")

// TickOf returns the tick for which a job is run at now: the latest one of the schedule that is not after now. A
// schedule without a location uses that of now. cron runs no job before its time. Each node counts a
// cron.ConstantDelaySchedule, as of "@every 5m", from its own start: its tick is the period that contains now, counted
// from the zero time.
func TickOf(s cron.Schedule, now time.Time) (time.Time, error) {
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return now.Truncate(time.Second).Truncate(every.Delay), nil
	}
	const day = 24 * time.Hour
	for _, back := range []time.Duration{time.Minute, time.Hour, day, 32 * day, 367 * day} {
		var last time.Time
		for t := s.Next(now.Add(-back)); !t.IsZero() && !t.After(now); t = s.Next(t) {
			last = t
		}
		if !last.IsZero() {
			return last, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %v", ErrNoTick, s)
}
