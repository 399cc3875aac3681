package once

import (
	"context"
	"fmt"
	"time"
)

// maxTicks is how many ticks of a window Missed can check.
const maxTicks = 100_000

// Missed returns the ticks of a job that are in the window and that nobody has run, oldest
// first. Possible reasons are that no node was alive, that the run died, or that the tick was
// given back.
//
// next is the job's schedule, like the method Next of the schedules of robfig/cron. It returns the
// first tick after a time, or the zero time if there is none. It receives times in time.Local,
// whatever the location of since. If a schedule depends on the location of its argument, wrap it
// in a function that converts to the right one.
//
// since is when the job was introduced, so that no earlier tick counts as missed. The zero time =
// before the window.
//
// Call Missed when a process starts, after a deploy or an outage, and from time to time. The answer
// can be outdated at once, and all nodes get the same one. So run its ticks with Do: all of them,
// or only the last one. Missed uses this machine's clock. It returns *InvalidError if there are
// more than 100,000 ticks in the window.
func (r *Runner) Missed(ctx context.Context, job string, since time.Time, next func(time.Time) time.Time) ([]time.Time, error) {
	if err := ValidateJob(job); err != nil {
		return nil, err
	}
	now := time.Now()
	from := now.Add(-r.config.Window)
	if since.After(from) {
		from = since.Local()
	}
	ticks, err := between(from, now, next)
	if err != nil || len(ticks) == 0 {
		return nil, err
	}
	records, err := r.config.Store.Look(ctx, job, Normal(ticks[0]), Normal(ticks[len(ticks)-1]))
	if err != nil {
		return nil, err
	}
	taken := make(map[int64]bool, len(records))
	for _, record := range records {
		taken[record.Tick.UnixMicro()] = record.State != Open
	}
	var missed []time.Time
	for _, tick := range ticks {
		if !taken[tick.UnixMicro()] {
			missed = append(missed, tick)
		}
	}
	return missed, nil
}

// between returns the ticks from one time to another, both included.
func between(from, to time.Time, next func(time.Time) time.Time) ([]time.Time, error) {
	var ticks []time.Time
	for t := next(from.Add(-1)); !t.IsZero() && !t.After(to); t = next(t) {
		if len(ticks) > 0 && !t.After(ticks[len(ticks)-1]) {
			return nil, &InvalidError{"next", "not rising", "return a time after the one that is given"}
		}
		if len(ticks) == maxTicks {
			return nil, &InvalidError{"Config.Window", "too long for the schedule", fmt.Sprintf("choose one that has at most %d ticks", maxTicks)}
		}
		ticks = append(ticks, t)
	}
	return ticks, nil
}
