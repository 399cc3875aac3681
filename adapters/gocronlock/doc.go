// Package gocronlock runs each tick of a gocron job on one of several schedulers: a gocron.Locker on package
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
// A gocron.Locker gets the name of a job, and is held while it runs. A job that is shorter than the difference of the nodes'
// clocks is therefore run by each of them in turn: 18 times in 6 periods, with three nodes whose clocks are two seconds
// apart (go-co-op/gocron#841). This Locker claims the tick instead, and a tick that was run stays run.
//
// # Which tick
//
// gocron does not tell a Locker for which time a job was scheduled. But it knows, and this Locker asks it: Bind tells
// whom. So neither the present nor the lateness of a timer matters:
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
// What package once does, for each tick that a node's gocron fires for. And a tick is fired for by some node, as long as:
//
//   - Clocks: a node's clock is ahead of the store's by less than once.Config.Early (10 s by default; beyond, it runs nothing,
//     with a *once.WindowError), and behind it by less than the Window. How far nodes are apart otherwise does not matter.
//   - Timers: one that is late still runs its own tick. gocron plans the next run when one begins: what is past
//     then, by a timer that is late by more than a period or a clock that was set forward, it leaves out. Missed of
//     once.Runner names those ticks. A clock that was set back repeats no tick.
//   - Places: all schedulers have the same gocron.WithLocation. When an hour comes twice, or not at all, all of them do the same.
//   - Periods of a DurationJob are at most the Window, unless the nodes begin at a multiple of it (gocron.WithStartAt).
//   - Names: each job has its own, by gocron.WithName. Without, it is that of the function.
//
// Unlock, which gocron calls with a context that has ended when it stops, notes that the tick was run whatever that context says.
//
// # What it does not guarantee
//
//   - gocron cannot be told that a claim was lost, and goes on with the job. Take its context from Locker.Context,
//     and what the job writes is fenced by the token that once.ClaimOf finds there.
//   - Without the listener Failed, a job that returned an error was run, and so was one that was cut short by Shutdown, or
//     panicked without a listener for panics. With it, so was one that failed while another run of the job went on: use
//     singleton mode.
//   - What WithStartImmediately begins has no tick of the calendar: jobs other than a DurationJob are run at the start by each node.
//     Intervals of more than one day, week or month count from each node's start. RunNow runs the next tick if it is near
//     enough (Early), and is refused otherwise; use a job with WithDisabledDistributedJobLocker for what is to run when it is asked for.
//   - In singleton mode a run that lasts longer than the period delays the ticks after it, and some may not be run.
//   - A job in a Lock that waits (once.Config.Wait) is not planned meanwhile on that node: keep Wait below the period.
//     Without Wait, the tick of a node that dies in the middle of a run is repeated only by who asks for what was Missed.
//   - An Elector is no claim. When leadership passes, a tick can be fired for by the old leader and by the new one, whose
//     clock is behind, or by none. gocron asks no Locker where there is an Elector.
package gocronlock
