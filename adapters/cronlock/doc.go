// Package cronlock runs each tick of a robfig/cron job on one of several nodes. It is a cron.JobWrapper on package
// once.
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	…
//	once, err := cronlock.Once(cronlock.Config{Runner: runner, Job: "close-the-day", Schedule: schedule, Location: time.UTC})
//	…
//	nightly := cron.New(cron.WithLocation(time.UTC))
//	nightly.Schedule(schedule, cron.NewChain(cron.Recover(logger), once).Then(cronlock.Func(closeTheDay)))
//	nightly.Start()
//
// # What is wrong with a lock
//
// cron has no lock of its own. A lock that a job takes and releases does not exclude a node whose clock is behind by
// more than the job's duration: three nodes whose clocks are a second apart ran 8 ticks 15 times. Here the job claims
// the tick, and a tick that has run is not run again.
//
// # Which tick
//
// A cron.JobWrapper receives neither the job's scheduled time nor its schedule. cron starts no job before its time by
// its own clock. The tick is therefore the latest one of Config.Schedule that is not in the future. Each node counts
// "@every 5m" from its own start: the tick is then the period that contains the current time, counted from the zero
// time.
//
// # What it guarantees
//
// The guarantees of package once hold for each tick that some node's cron fires for, as long as:
//
//   - Clocks: a node's clock is ahead of the store's by less than once.Config.Early (10 s by default; beyond, it runs
//     nothing), and behind it by less than the Window. How far nodes are apart otherwise does not matter. A clock that
//     is set back repeats no tick.
//   - Timers: a timer that fires before the next tick is due runs its own tick. A later timer, or a machine that
//     was suspended, runs the latest tick that is past. Earlier ticks are skipped, and Missed of once.Runner
//     returns them.
//   - Places: all nodes have the same location, and Config.Location is that of the cron, unless the schedule has one
//     (CRON_TZ). The zones of machines then do not matter. When an hour comes twice, or not at all, their schedules
//     agree. (In zones that change by half an hour, the schedule "0 0 * * *" of robfig/cron 3.0.1 skips the day
//     after.)
//
// # What it does not guarantee
//
//   - A job that is not a Func, or is behind another wrapper, is not notified of the loss of its claim, and counts
//     as run whatever its outcome.
//   - The Stop method of cron waits for jobs, but does not end their contexts: use Config.Context
//     for that.
//   - With "@every", a timer that is late by one second causes a drift, which can skip a period on that node.
//   - A job that panics has failed, and the panic continues. Put cron.Recover before Once, or behind it if a panic is
//     to count as a run.
package cronlock
