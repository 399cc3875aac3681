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
// A lock around a job cannot guarantee that. If a job takes less time than the nodes' clocks
// differ by, each node in turn finds the lock free and runs the job. This package claims a tick:
// the job's name and the scheduled time. The nodes agree on the tick, whatever their clocks say.
// A tick that has run is not run again.
//
// A Store keeps the claims. once/postgres keeps them in a table, where work and claim can also be
// one transaction. once/leased keeps them in any lease.Store, such as a lock server's. For
// schedulers there are adapters/gocronlock and adapters/cronlock.
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
//   - Of all nodes that call Do for a tick, one runs fn at a time. When that run has ended, Ran or
//     Failed, nobody runs the tick again.
//   - If a run dies, for example because its process was killed, its tick is Open again after the
//     TTL. A node that waits for the tick (Config.Wait), or asks again, then runs it with a
//     higher token.
//   - The ctx of fn ends before another node can be given the tick. Its deadline is measured on
//     clocks that cannot be set, and comes TTL/10 before the store's.
//   - A tick older than the Window is refused, and the ticks that Missed returns were not run.
//     Stores remember how ticks ended for longer than any Window, so that no forgotten tick is
//     mistaken for a missed one.
//   - Do reports the state of the tick: that this call ran it, or which node ran or runs it.
//
// # What it does not guarantee
//
//   - That the work of fn is done once. If a process dies after fn has returned and before that
//     is recorded, the work is done but the tick is Open. Work that was cut short is also
//     repeated. Make the work and the claim one transaction, with DoTx of once/postgres.
//     Otherwise make the work repeatable, or fence it by (tick, token).
//   - That a paused holder does not work at the same time as another node. If fn still writes
//     after its ctx has ended, only the resource that it writes to can refuse the write, by
//     (tick, token).
//   - That a tick is run at all. Somebody must call Do for it within its Window: a scheduler, or
//     after an outage the caller of Missed.
//   - Order: the run of a tick may begin while the previous tick still runs.
//   - That the store's clock is never set. If it is set forward, a run's claim ends while the run
//     trusts it, as with any lease. If a store forgets ticks, such as a standby that missed the
//     last commits, they may be run again.
//
// # After a deploy or an outage
//
// Schedulers do not run the ticks of their downtime. When a process starts, it calls Missed, and
// runs all missed ticks, or only the last one:
//
//	missed, err := runner.Missed(ctx, "close-the-day", introduced, schedule.Next)
//	…
//	for _, tick := range missed {
//		_, err := runner.Do(ctx, "close-the-day", tick, work)
//	}
//
// All nodes may do so at once: each tick is run by one. If you call Missed from time to time, it
// also finds ticks whose run died while no node waited for them.
//
// # Failure
//
//	fn returns an error                    FAILED: nobody runs it again; unless Config.Retry says so: OPEN
//	... after its ctx ended                OPEN: it was cut short, by a deploy for example
//	fn panics                              FAILED; the panic goes on
//	the process dies                       OPEN after TTL
//	the store is away during a run         renewals are tried until the deadline; then fn's ctx ends with *LostError
//	the store is away at the end           the end is retried until the deadline; then Do returns *LostError
//	the process was paused past its TTL    fn's ctx has ended; the end is noted if nobody has taken the tick, else *LostError
//	another runs the tick                  Result.State is Running at once, or after Config.Wait
//	nodes' clocks differ                   no effect: a tick is its scheduled time; a node may run it Config.Early before the store's clock
//	the store is away at the start         an error of the store: nothing was run; the tick is missed
package once
