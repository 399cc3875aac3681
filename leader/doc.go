// Package leader elects one leader among the processes of an election. It reports the election's
// state to each of them, and runs work in the leader.
//
//	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
//	if err != nil {
//		return err
//	}
//	err = elector.Run(ctx, func(ctx context.Context) error {
//		return schedule(ctx) // only one process does; ctx ends when leadership does
//	})
//
// A Backend stores the leadership:
//
//   - leader/postgres: a session advisory lock
//   - leader/leased: a lease in any store
//   - leader/file: a file on one machine
//   - leader/kubernetes, a module of its own: a Lease object
//   - leader/leadertest: memory, for tests
//
// # What it does not guarantee
//
// A node's view of its own leadership is as old as the last answer from the backend. Work that does not check
// its context can therefore continue after a successor has begun. Work that does check its context stops in
// time in two cases:
//
//   - Leadership is given up: work returns first, then the lock is released.
//   - The backend stops answering: the context ends before the lease can.
//
// If the server itself ends a leader's session, the successor may learn of it before the leader does. The
// two then overlap until the notice reaches the leader, which takes about a millisecond, unless
// Config.SettleDelay makes the successor wait.
//
// If a process is stopped and resumes after its deadline, its first check finds the context ended. Whatever
// it does before that check still happens. IsLeader, and Err and Done of work's context, check the clock.
// Contexts made from it by WithCancel or WithTimeout do not: a timer ends them. After the machine was
// suspended, that takes up to RenewInterval or RenewTimeout. A Done channel that was obtained before the
// suspension closes at that time, too.
//
// If a late write must never win, guard the write. For transactions, leader/postgres has Guard and InTx.
// For everything else, a Term is a fencing token.
//
// # Start, Run, and who ends it
//
// Run(ctx, work) takes part in the election until ctx ends, or until work returns on its own. If
// work returns because leadership was lost, Run continues, and calls work again in the node's next
// term.
//
// Start(ctx) is for programs whose framework starts and stops components (fx, run groups, a main with hooks).
// Its ctx bounds only the start, as in those frameworks. Shutdown ends the Elector. After Start has returned,
// the end of ctx has no effect, because fx, for example, cancels its start context at that time. See the
// example of Start. Package services starts and stops services that run only on the leader.
//
// Start waits for the first attempt. An error is permanent if no attempt can succeed until the cause is
// fixed, such as a wrong password, a missing database or table, or missing rights. After a permanent error
// the Elector stops, and Start or Run returns an error that matches ErrPermanent and names the election and
// the cause. Two kinds of nodes retry instead: nodes with Config.KeepTrying, and nodes that have led, or
// have followed for LeaseDuration. The reason for failed attempts is logged as a warning, at once for each
// new reason and then once a minute. The first success after failures is logged too.
//
// # What it guarantees
//
//   - There is at most one leader at a time, with the exceptions above.
//   - IsLeader, Context and Term use the time of the last successful renewal, and a clock that keeps running while
//     the machine is suspended. They never rely only on a flag.
//   - In an orderly end, the context ends first. Then Run waits for its work, while the node keeps renewing.
//     Then leadership is released. The order never changes.
//   - Every Acquired is followed by exactly one Released or Lost before the next Acquired or Stopped. Lost
//     never comes without an Acquired before it. A test explores every reachable state to check this.
//   - Terms rise across all processes, if the backend counts them.
//   - After Shutdown nothing is held and no goroutine is left.
//
// # The machine
//
//	                 Start
//	┌─────────┐ ─────────────▶ ┌──────────┐  due   ┌───────────┐
//	│ Stopped │                │ Follower │ ─────▶ │ Acquiring │◀─┐ half
//	└─────────┘ ◀───────────── └──────────┘ ◀───── └───────────┘──┘ done
//	     ▲           stop        ▲  ▲   ▲  refused,   │   ▲
//	     │                       │  │   │  failed     │   │ led by another
//	     │ stop         released,│  │   │             ▼   │ meanwhile
//	┌───────────┐  failed, lost  │  │   └──────── ┌────────┐ lost  ┌──────────────┐
//	│ Releasing │ ───────────────┘  │   lost,     │ Leader │ ────▶ │ Reconnecting │
//	└───────────┘ ◀─────────────────┼─ no grace   └────────┘ ◀──── └──────────────┘
//	               stop, step down  │               recovered        │
//	                                └────────────────────────────────┘
//	                                  led by another, grace over
//
// The table in machine.go makes every decision. With LeadOnce, a node goes to Stopped instead of Follower
// after it has led, or after an error. After a permanent error it goes to Stopped too, unless it retries
// (see above).
//
// In Reconnecting the node does not lead: its context has ended, because it does not hold the lock. If it
// leads again within ReconnectGrace, and no other term began in between, it reports Recovered instead of
// Lost and Acquired, and Run calls work again. Without terms a node cannot know whether another term began
// in between, so it always reports Lost, then Acquired.
//
// # Callbacks
//
// Config.Callbacks are called one after the other, in the order of the events. The next transition waits for
// them, so they should be quick and must not wait for a transition. Shutdown, StepDown, Run and Start wait
// for transitions: in a callback they would block until their ctx ends. Call Resign there, or start a
// goroutine. Events delivers the same events to readers that start later or read only for some time, and
// never waits for its readers.
//
// Work must not call Shutdown or StepDown, because they wait for work to return. If Run started the Elector,
// work gives up leadership by returning. If Start did, work calls Resign.
//
// # Who leads
//
// Leader asks the backend; on PostgreSQL the backend opens a connection for the query. LeaderSeen returns the
// leader that this node last saw, and the time at which it saw it, without I/O. OnNewLeader is called when
// another identity leads. LeaderSeen and OnNewLeader can be late by Retry's delay (2 s by default) plus a
// RenewTimeout, because a follower asks for the leader only when its attempt is refused. That is enough for
// logs, dashboards and redirects. Do not use it to decide whether a node may write.
//
// # The times
//
//	        renewals, every RenewInterval           LossDrain  margin
//	├───────────┬───────────┬───────────┬─ ─ ─ ─ ─┬──────────┬──────┤
//	0                                       trust │          │      LeaseDuration
//	start of the last successful renewal          context ends      others can lead
//
// margin is a tenth of LeaseDuration, and allows for clocks that run at different rates. New rejects
// settings with which a single slow renewal would end leadership: LossDrain + RenewInterval + RenewTimeout
// must be less than LeaseDuration - margin. With the defaults (15 s, 5 s, 5 s, 1.5 s) a leader that is cut
// off stops at most 12 s after its last successful renewal. Another node leads at most 15 s after that
// renewal, plus the time that the backend needs.
//
// MaxRenewFailures can end leadership before the deadline, but never extends leadership past it
// (docs/adr/0013-the-local-deadline-comes-first.md).
//
// # Other libraries' names
//
//	Elector           Manager, LeaderElector (client-go), Election (etcd), Candidate
//	Elector.Context   Lease, or Session, handed out by Start or Acquire; IsLeader and WaitForLeadership are Elector's
//	Elector.Run       RunOrDie with OnStartedLeading (client-go), Campaign (etcd)
//	LeaderSeen        GetLeader (client-go), Leader (etcd); OnNewLeader is client-go's too
//	Elector.StepDown  Resign (etcd), ReleaseOnCancel (client-go)
//	Shutdown          Stop, Close
//	Backend           resourcelock.Interface (client-go), lock provider, store
//	Config.Identity   holder identity (client-go), node id, owner
//	Term              leader epoch, fencing token, leaseTransitions (Kubernetes), revision (etcd)
//	LeaseDuration     LeaseDuration (client-go), lease_duration, ttl
//	RenewInterval     RetryPeriod while leading (client-go), health interval, heartbeat interval
//	RenewTimeout      part of RenewDeadline (client-go)
//	Retry (backoff)   RetryPeriod while following (client-go), retry interval, retry base and max
//	ReconnectGrace    reconnect grace, flap damping
//	MaxRenewFailures  failure threshold, consecutive failures
//	DrainTimeout      graceful timeout (controller-runtime)
//	SettleDelay       lock-delay (Chubby, Consul)
//
// # When things go wrong
//
//	the backend reports that leadership is gone  context ends at once; Lost, or Reconnecting
//	renewals fail                                context ends LossDrain before the lease can
//	... in term after term                       from the second term that lasted less than four leases, pauses that double, up to eight leases; the error names the remedy
//	the process is stopped, then resumes         the first check finds the context ended; Lost
//	work ignores its context, on a stop          released after DrainTimeout, or as KeepUntilDrained says
//	work ignores its context, after a loss       the node tries to lead again only when work has returned
//	a release fails                              Released and Error; the node continues as a follower
//	an attempt fails                             AcquireFailed and Error; each new reason logged, and repeated each minute; retried after Retry's delay
//	... with a permanent error                   Stopped, unless the node retries (see Start); Start, Run and WaitForLeadership return an error that matches ErrPermanent
//	Retry allows no further attempt              Stopped; Run and WaitForLeadership return ErrGaveUp
//	a callback panics                            logged and reported to OnError
//	a callback takes more than a second          logged with its name; renewals continue, transitions wait
//	work panics                                  the panic reaches Run's caller; Run first shuts down an Elector that it started
//	attempts come without a pause                after a few they are 50 ms apart, whatever Retry or the backend says
package leader
