// Package gocronlock runs each tick of a gocron job on one of several schedulers. It has a gocron.Locker on package
// once, and a gocron.Elector on package leader.
//
//	store, err := postgres.New(postgres.Config{Pool: pool, CreateTable: true}) // once/postgres
//	…
//	runner, err := once.New(once.Config{Store: store})
//	…
//	locker := gocronlock.NewLocker(runner, slog.Default())
//	scheduler, err := gocron.NewScheduler(gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(locker))
//	…
//	locker.Bind(scheduler)
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(closeTheDay), gocron.WithName("close-the-day"),
//		gocron.WithEventListeners(gocron.AfterJobRunsWithError(locker.Failed)))
//
// # What is wrong with a lock
//
// A gocron.Locker receives the name of a job, and is held while the job runs. If a job is shorter than the difference
// between the nodes' clocks, each node therefore runs it in turn: 18 times in 6 periods, with three nodes whose clocks
// are two seconds apart (go-co-op/gocron#841). This Locker claims the tick instead, and a tick that has run is not run
// again.
//
// # Which tick
//
// gocron does not pass a job's scheduled time to a Locker. This Locker asks the scheduler, which knows it: Bind sets
// the scheduler. So neither the current time nor a late timer matters:
//
//	CronJob, DailyJob, WeeklyJob, MonthlyJob,    the scheduled time, which is the same on all nodes
//	OneTimeJob
//	DurationJob                                  the period in which it was scheduled, counted from the zero time in
//	                                             steps of the duration. Nodes that started at different moments are scheduled
//	                                             once in each period; the first one runs
//	DurationRandomJob                            none: it is not run, and ErrNoTick says so
//
// # What it guarantees
//
// The guarantees of package once hold for each tick that a node's gocron fires for. Some node fires for each tick, as
// long as:
//
//   - Clocks: a node's clock is ahead of the store's by less than once.Config.Early (10 s by default), and behind it by
//     less than the Window. A node beyond Early runs nothing, with a *once.WindowError. How far nodes are apart
//     otherwise does not matter.
//   - Timers: a late timer still runs its own tick. gocron plans the next run when one begins. It skips ticks that are
//     past by then, because a timer was late by more than a period or a clock was set forward. Missed of once.Runner
//     returns those ticks. A clock that was set back repeats no tick.
//   - Places: all schedulers have the same gocron.WithLocation. When an hour comes twice, or not at all, all of them do
//     the same.
//   - Periods of a DurationJob are at most the Window, unless the nodes begin at a multiple of it (gocron.WithStartAt).
//   - Names: each job has its own, set by gocron.WithName. Without it, the name is that of the function.
//
// When gocron stops, it calls Unlock with a context that has ended. Unlock still records that the tick was run.
//
// # What it does not guarantee
//
//   - gocron cannot be notified that a claim was lost, and continues the job. Take the job's context from
//     Locker.Context. The token that once.ClaimOf finds there fences the job's writes.
//   - Without the listener Failed, a job counts as run even if it returned an error, Shutdown cut it short, or it
//     panicked without a listener for panics. With Failed, a job that failed while another run of it was in progress
//     still counts as run: use singleton mode.
//   - A run begun by WithStartImmediately has no tick of the calendar: each node runs such a job at the start, unless
//     it is a DurationJob. Intervals of more than one day, week or month count from each node's start. RunNow runs the
//     next tick if that is near enough (Early), and is refused otherwise. For runs on demand, use a job with
//     WithDisabledDistributedJobLocker.
//   - In singleton mode a run that lasts longer than the period delays the ticks after it, and some may not be run.
//   - While a job waits in Lock (once.Config.Wait), that node does not plan its next run: keep Wait below the period.
//     Without Wait, if a node dies in the middle of a run, the tick is repeated only by a caller that asks for Missed
//     ticks.
//   - An Elector does not claim ticks. When leadership changes, both the old leader and the new one, whose clock is
//     behind, can fire for a tick, or neither. If there is an Elector, gocron does not ask a Locker.
package gocronlock
