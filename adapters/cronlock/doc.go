// Package cronlock runs each tick of a robfig/cron job on one of several nodes: a cron.JobWrapper on package
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
// cron has none of its own, and a lock that a job takes and gives back excludes nobody whose clock is behind by more
// than the job lasts: three nodes whose clocks are a second apart ran 8 ticks 15 times. Here the tick is claimed, and one
// that was run stays run.
//
// # Which tick
//
// A cron.JobWrapper gets neither the time for which the job is scheduled nor its schedule. cron starts no job before its
// time by its own clock, so the tick is the last one of Config.Schedule that is not after the present. That of
// "@every 5m", which each node counts from its start, is the period that the present is in, counted from the zero time.
//
// # What it guarantees
//
// What package once does, for each tick that some node's cron fires for, as long as:
//
//   - Clocks: a node's clock is ahead of the store's by less than once.Config.Early (10 s by default; beyond, it runs nothing),
//     and behind it by less than the Window. How far nodes are apart otherwise does not matter. A clock that is set back repeats
//     no tick.
//   - Timers: one that fires before the next tick is due runs its own. One that is later, or a machine that was suspended, runs the
//     last tick that is past; those before are left out, and Missed of once.Runner names them.
//   - Places: all nodes have the same location, and Config.Location is that of the cron, unless the schedule has one
//     (CRON_TZ). The zones of machines then do not matter. When an hour comes twice, or not at all, their schedules say the same. (In
//     zones that change by half an hour, the schedule "0 0 * * *" of robfig/cron 3.0.1 leaves out the day after.)
//
// # What it does not guarantee
//
//   - A job that is not a Func, or stands behind another wrapper, is not told that its claim was lost, and was run
//     whatever became of it.
//   - Stop of cron waits for jobs and ends no context: that is for Config.Context.
//   - With "@every", a drift of one second, from a timer that was late by one, can leave out a period on that node.
//   - A job that panics has failed, and the panic goes on: put cron.Recover before Once, or behind it if a panic is to
//     count as a run.
package cronlock
