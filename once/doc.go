// Package once runs each tick of a scheduled job on exactly one node of many.
//
//	store, err := postgres.New(postgres.Config{Pool: pool, CreateTable: true})
//	…
//	runner, err := once.New(once.Config{Store: store})
//	…
//	result, err := runner.Do(ctx, "close-the-day", tick, func(ctx context.Context) error {
//		return closeTheDay(ctx, tick)
//	})
//
// A lock around a job is not that: a job that is shorter than the difference of the nodes' clocks is run
// by one node after the other, each of which finds the lock free. What is claimed here is a tick: the job's name and
// the scheduled time, on which the nodes agree whatever their clocks say. A tick that has been run stays run.
//
// Claims are kept by a Store: once/postgres in a table, where work and claim can also be one transaction, and
// once/leased on any lease.Store, such as a lock server's. For schedulers there are adapters/gocronlock and
// adapters/cronlock.
//
// # What becomes of a tick
//
//	             Claim                     End(nil)
//	┌──────┐ ──────────────▶ ┌─────────┐ ──────────▶ RAN
//	│ OPEN │                 │ RUNNING │
//	└──────┘ ◀────────────── └─────────┘ ──────────▶ FAILED
//	          it died, was                 End(err)
//	          cut short, or Retry
//
// # What it guarantees
//
//   - Of all nodes that call Do for a tick, one runs fn at a time, and when it has ended, Ran or Failed, nobody
//     runs it again.
//   - A run that died, in a process that was killed for example, leaves the tick Open when its TTL is over. Who
//     waits for it (Config.Wait), or asks again, runs it with a higher token.
//   - The ctx of fn ends before another node can be given the tick: by a deadline on clocks that nobody sets,
//     TTL/10 before the store's.
//   - What is older than the Window is refused, and what Missed names was not run. Ends are remembered for longer
//     than any Window, so that a tick is never taken for a missed one because it was forgotten.
//   - Do says what became of the tick: that this call ran it, or who did or does.
//
// # What it does not guarantee
//
//   - That what fn did is done once: a process that dies between the end of fn and the note of it has done the work,
//     and the tick is Open. So is fn's work repeated that was cut short. Let it be one transaction with the claim, with
//     DoTx of once/postgres; or make it repeatable, or fence it by (tick, token).
//   - That nobody works beside a holder that is paused: what fn still writes after its ctx has ended can only be
//     refused by what it writes to, by (tick, token).
//   - That a tick is run at all. Somebody has to call Do for it in its Window: a scheduler, or after an outage who asks what
//     was Missed.
//   - Order: a run of a tick may begin while that of the tick before lasts.
//   - A clock of the store that is set: forward, and a run's claim ends while it is trusted, as for any lease. And what
//     a store forgets, a standby for example that missed the last commits, may be run again.
//
// # After a deploy or an outage
//
// Schedulers do not run what they slept through. When a process starts, it asks, and runs all that was missed, or
// the last one only:
//
//	missed, err := runner.Missed(ctx, "close-the-day", introduced, schedule.Next)
//	…
//	for _, tick := range missed {
//		_, err := runner.Do(ctx, "close-the-day", tick, work)
//	}
//
// All nodes may do so at once: each tick is run by one. From time to time besides, it finds the ticks whose run died when
// nobody waited for it.
//
// # Failure
//
//	fn returns an error                    FAILED: nobody runs it again; unless Config.Retry says so: OPEN
//	... after its ctx ended                OPEN: it was cut short, by a deploy for example
//	fn panics                              FAILED; the panic goes on
//	the process dies                       OPEN after TTL
//	the store is away during a run         renewals are tried until the deadline; then fn's ctx ends with *LostError
//	the store is away at the end           the note is tried until the deadline; then Do returns *LostError
//	the process was paused past its TTL    fn's ctx has ended; the end is noted if nobody has taken the tick, else *LostError
//	another runs the tick                  Result.State is Running at once, or after Config.Wait
//	nodes' clocks differ                   nothing: a tick is its scheduled time; a node may run it Config.Early before the store's clock
//	the store is away at the begin         an error of the store: nothing was run; the tick is missed
package once
