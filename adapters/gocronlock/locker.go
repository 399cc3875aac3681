package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/once"
)

// ErrNoTick means that a job cannot be run once per tick; its text gives the reason. The job is not run.
var ErrNoTick = errors.New("gocronlock: the job has no tick")

// A Locker is a gocron.Locker that lets each tick of a job run once, among all schedulers whose Lockers use the
// same store. Use one Locker per scheduler.
type Locker struct {
	runner *once.Runner
	logger *slog.Logger

	mu        sync.Mutex
	scheduler gocron.Scheduler        // nil until Bind
	last      map[uuid.UUID]time.Time // the scheduled time of the last Lock of a job
	current   map[string][]*lock      // of the runs of a job, in the order they began
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker for gocron.WithDistributedLocker, or WithDistributedJobLocker. Bind it to the
// scheduler. logger receives the reasons that gocron drops: why a job was not run, unless it was run
// elsewhere. nil = discard.
func NewLocker(runner *once.Runner, logger *slog.Logger) *Locker {
	return &Locker{runner: runner, logger: background.Logger(logger), last: make(map[uuid.UUID]time.Time), current: make(map[string][]*lock)}
}

// Bind sets the Locker's scheduler, which knows when jobs are scheduled. Call it before the scheduler's Start:
// without it no job runs.
func (l *Locker) Bind(s gocron.Scheduler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scheduler = s
}

// Lock claims the tick for which the job was scheduled. After any error gocron does not run the job. Errors are
// *once.TakenError if the tick was run or runs elsewhere, ErrNoTick, or those of once.Runner.Claim.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	run, err := l.claim(ctx, job)
	if err != nil {
		if !errors.Is(err, once.ErrTaken) {
			l.logger.Warn("job was not run", slog.String("job", job), slog.Any("error", err))
		}
		return nil, err
	}
	k := &lock{locker: l, job: job, run: run}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current[job] = append(l.current[job], k)
	return k, nil
}

func (l *Locker) claim(ctx context.Context, name string) (*once.Run, error) {
	found, err := l.ask(ctx, name)
	if err != nil {
		return nil, err
	}
	tick, err := tickOf(found.job, found.scheduled)
	if err != nil {
		return nil, err
	}
	run, err := l.runner.Claim(ctx, name, tick)
	if late := (*once.WindowError)(nil); errors.As(err, &late) && !tick.Equal(found.scheduled) && late.Late > 0 {
		err = fmt.Errorf("gocronlock: set once.Config.Window to the job's period or more, or let all nodes begin at a multiple of the period, by gocron.WithStartAt: %w", err)
	}
	if err == nil || errors.Is(err, once.ErrTaken) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last[found.job.ID()] = found.scheduled
	}
	return run, err
}

// A planned job is one that is about to run.
type planned struct {
	job       gocron.Job
	scheduled time.Time
	err       error
}

// ask asks the scheduler about a job. A stopping scheduler answers only after the job has ended, and ends the
// job's ctx. The goroutine ends when the scheduler has stopped.
func (l *Locker) ask(ctx context.Context, name string) (planned, error) {
	answer := make(chan planned, 1)
	go func() {
		job, err := l.find(name)
		p := planned{job: job, err: err}
		if err == nil {
			p.scheduled, p.err = l.scheduled(job)
		}
		answer <- p
	}()
	select {
	case p := <-answer:
		return p, p.err
	case <-ctx.Done():
		return planned{}, context.Cause(ctx)
	}
}

// find returns the only job with the name.
func (l *Locker) find(name string) (gocron.Job, error) {
	l.mu.Lock()
	scheduler := l.scheduler
	l.mu.Unlock()
	if scheduler == nil {
		return nil, fmt.Errorf("%w: the Locker has no scheduler: call Bind before the scheduler's Start", ErrNoTick)
	}
	jobs := scheduler.Jobs()
	l.forget(jobs)
	var found gocron.Job
	for _, job := range jobs {
		switch {
		case job.Name() != name:
		case found != nil:
			return nil, fmt.Errorf("%w: two jobs have the name %s: give each its own, by gocron.WithName", ErrNoTick, name)
		default:
			found = job
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: the scheduler of the Locker has no job %s", ErrNoTick, name)
	}
	return found, nil
}

// forget drops the state of jobs that the scheduler no longer has, such as those that ran once.
func (l *Locker) forget(jobs []gocron.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) <= len(jobs) {
		return
	}
	there := make(map[uuid.UUID]bool, len(jobs))
	for _, job := range jobs {
		there[job.ID()] = true
	}
	maps.DeleteFunc(l.last, func(id uuid.UUID, _ time.Time) bool { return !there[id] })
}

// scheduled returns the time for which the job that is about to run was scheduled: the first that gocron has not
// crossed out. After the clock was set back, that tick may have been run already.
func (l *Locker) scheduled(job gocron.Job) (time.Time, error) {
	times, err := job.NextRuns(2)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrNoTick, err)
	}
	if len(times) == 0 {
		return time.Time{}, fmt.Errorf("%w: %s is not scheduled", ErrNoTick, job.Name())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(times) == 2 && times[0].Equal(l.last[job.ID()]) {
		return times[1], nil
	}
	return times[0], nil
}

// tickOf returns the tick of a scheduled time. Jobs of the calendar are scheduled for the same times on all
// nodes. A duration counts from the scheduler's start, so its tick is the period in which it was scheduled.
func tickOf(job gocron.Job, scheduled time.Time) (time.Time, error) {
	switch schedule := job.Schedule().(type) {
	case gocron.DurationJobSchedule:
		return scheduled.Truncate(schedule.Duration), nil
	case gocron.DurationRandomJobSchedule:
		return time.Time{}, fmt.Errorf("%w: the times of %s are random on each node: use another schedule, or gocron.WithDisabledDistributedJobLocker", ErrNoTick, job.Name())
	}
	return scheduled, nil
}

// Failed records that the run of a job failed. The tick then ends in once.Failed, or is given back
// if once.Config.Retry says so. gocron offers a Lock no other way to learn of a failure:
//
//	gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed))
//
// gocron does not say which run failed. If runs of the job overlap, Failed logs that, and the tick counts as
// run.
func (l *Locker) Failed(_ uuid.UUID, job string, err error) {
	runs := l.runs(job)
	if len(runs) > 1 {
		l.logger.Warn("job failed, and it is not known for which of its ticks: its runs overlap", slog.String("job", job), slog.Any("error", err))
		return
	}
	for _, k := range runs {
		k.mu.Lock()
		k.err = err
		k.mu.Unlock()
	}
}

// Context returns the context for the work of the job that runs now, if its runs do not overlap. It ends with
// the job's own context, and when the claim on the tick is lost. (gocron cannot be notified of that.)
// once.ClaimOf finds the token in it. ok is false if the job does not run under a Lock.
func (l *Locker) Context(job string) (ctx context.Context, ok bool) {
	runs := l.runs(job)
	if len(runs) == 0 {
		return nil, false
	}
	return runs[len(runs)-1].run.Context(), true
}

func (l *Locker) runs(job string) []*lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.current[job])
}

// A lock is one run of a tick.
type lock struct {
	locker *Locker
	job    string
	run    *once.Run

	mu  sync.Mutex
	err error // from Failed
}

// Unlock records that the tick was run. It ignores ctx, which gocron cancels when it stops. gocron drops
// Unlock's error, so Unlock logs it.
func (k *lock) Unlock(context.Context) error {
	k.mu.Lock()
	failure := k.err
	k.mu.Unlock()
	_, err := k.run.End(failure)
	if err != nil {
		k.locker.logger.Warn("job did not end well", slog.String("job", k.job), slog.Any("error", err))
	}
	k.locker.mu.Lock()
	defer k.locker.mu.Unlock()
	left := slices.DeleteFunc(k.locker.current[k.job], func(other *lock) bool { return other == k })
	if k.locker.current[k.job] = left; len(left) == 0 {
		delete(k.locker.current, k.job)
	}
	return err
}
