package once

import (
	"context"
	"fmt"
	"time"
)

// maxTicks is how many ticks of a window Missed looks at.
const maxTicks = 100_000

// Missed returns the ticks of a job that are in the window and that nobody has run: because no node
// was alive, because the run died, or because it was given back. The oldest is first. next is the job's
// schedule: it returns the first tick after a time, or the zero time if there is none, as Next of the
// schedules of robfig/cron does. It gets times of time.Local, whatever since is in: a schedule that goes by the
// location of what it gets needs a function that gives it its own. since is when the job was introduced, so that it has missed nothing
// before; the zero time = before the window.
//
// It is for the start of a process, after a deploy or an outage, and for looking from time to time. The
// answer is old at once, and all nodes get the same, so run what it names by Do: all of it, or only the
// last one. It goes by this machine's clock. *InvalidError if there are more than 100,000 ticks in the
// window.
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
