// Package leader elects one leader among the processes that take part in an
// election, reports to each of them where it stands, and runs work while it leads.
//
//	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
//	if err != nil {
//		return err
//	}
//	err = elector.Run(ctx, func(ctx context.Context) error {
//		return schedule(ctx) // only one process does; ctx ends when leadership does
//	})
//
// Where leadership lives is the business of a Backend: leader/postgres keeps it
// in a session advisory lock, leader/leased in a lease of any store, leader/file in a
// file of one machine, leader/kubernetes, a module of its own, in a Lease object, and
// leader/leadertest in memory, for tests.
//
// # What it does not guarantee
//
// What a node knows of its leadership is what another machine said a while ago, so work that does not look
// at its context can go on after a successor has begun. It stops in time in two
// cases: when leadership is given up (work returns first, then the lock is
// released) and when nothing is heard any more (the context ends before the lease
// can). But when the server itself ends a leader's session, the
// successor may hear of it first: the two overlap for as long as the notice is under
// way, a millisecond or so, unless Config.SettleDelay makes the successor wait. A
// process that is stopped and wakes finds its context ended at the first look, and
// does whatever it does before that look. IsLeader, and Err of the context that work
// got, look at the clock; Done, and contexts derived from that one, follow when a
// timer has run, which after a suspend of the machine takes up to RenewInterval or
// RenewTimeout. Where no late write may win, guard the write: leader/postgres has
// Guard and InTx for transactions, and a Term is a fencing token for everything else.
//
// # Start, Run, and who ends it
//
// Run(ctx, work) takes part until ctx ends, or work returns. Start(ctx) begins, and is for
// programs whose framework starts and stops things (fx, run groups, a main of hooks): its
// ctx bounds the start only, as in those frameworks, and Shutdown ends the Elector. A
// ctx that ends after Start has returned, as fx's does when all has started, ends
// nothing; see the example of Start. Package services starts and stops what only the leader runs.
//
// Start waits for the first attempt, and both return its error if no attempt can succeed
// before somebody mends something: a wrong password, no such database, no table, no rights.
// The error matches ErrPermanent, and its text begins with what is wrong. Config.KeepTrying
// tries on instead; so does a node that has led, or followed for a lease. Why attempts fail is
// logged as a warning, at once for each new reason and then each minute, and that they succeed again.
//
// # What it guarantees
//
//   - One leader at a time, but for what is said above.
//   - IsLeader, Context and Term answer from the moment of the last good renewal and a
//     clock that runs on during a suspend, never from a flag alone.
//   - In good order first the context ends, then Run waits for its work,
//     still renewing, then leadership is released. Never the other way round.
//   - Every Acquired is followed by exactly one Released or Lost before the next
//     Acquired or Stopped, and Lost never comes without an Acquired before it. A test
//     explores every reachable state to prove it.
//   - Terms rise, in all processes, if the backend counts them.
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
// The table is in machine.go, and is all that decides. With LeadOnce the
// ways to Follower that follow a leadership or an error lead to Stopped. So does a first
// attempt that fails if no other can succeed.
//
// In Reconnecting the node does not lead: its context has ended, because the lock is not held. If
// it leads again within ReconnectGrace and no other term came between, that is
// reported as Recovered in place of Lost and Acquired, and Run calls work
// again. A backend without terms cannot know that, and so never recovers: there it is
// always Lost, then Acquired.
//
// # Callbacks
//
// Config.Callbacks are called one after the other, in the order of what happens, and the next
// transition waits for them: they should be quick. So they must not wait for a
// transition either. Shutdown, StepDown, Run and Start do, and in a
// callback wait for as long as their ctx lets them: use Resign, or a goroutine. Events gives the
// same to who comes later, or for a time, and nothing waits for its readers.
//
// Work must not call Shutdown or StepDown and wait, because they wait for work. It gives
// leadership up when it returns, if Run started the Elector; else it calls Resign.
//
// # Who leads
//
// Leader asks the backend, which on PostgreSQL makes a connection for it. LeaderSeen
// returns what this node saw last, and when, without I/O; OnNewLeader is called when another identity
// leads. A follower looks when an attempt of its is refused, so what it knows is as old as
// Retry's delay (2 s by default) and a RenewTimeout: good for logs, dashboards and for
// redirecting requests, but not for deciding who may write.
//
// # The times
//
//	        renewals, every RenewInterval           LossDrain  margin
//	├───────────┬───────────┬───────────┬─ ─ ─ ─ ─┬──────────┬──────┤
//	0                                       trust │          │      LeaseDuration
//	start of the last good renewal                context ends      others can lead
//
// margin is a tenth of LeaseDuration, for clocks of different rates. New refuses
// times by which one slow renewal would end leadership: LossDrain + RenewInterval +
// RenewTimeout must be less than LeaseDuration - margin. With the defaults (15 s,
// 5 s, 5 s, 1.5 s) a leader that is cut off stops 12 s after its last good renewal
// at the latest, and another leads at most 15 s after it, plus what its backend needs.
//
// MaxRenewFailures ends leadership sooner; the deadline comes first all the same
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
//	Retry             RetryPeriod while following (client-go), retry interval, retry base and max
//	ReconnectGrace    reconnect grace, flap damping
//	MaxRenewFailures  failure threshold, consecutive failures
//	DrainTimeout      graceful timeout (controller-runtime)
//	SettleDelay       lock-delay (Chubby, Consul)
//
// # When things go wrong
//
//	the backend says that leadership is gone   context ends at once; Lost, or Reconnecting
//	renewals fail                              context ends LossDrain before the lease can
//	the process is stopped, then goes on       context found ended at the first look; Lost
//	work ignores its context, on a stop        released after DrainTimeout, or as KeepUntilDrained says
//	work ignores its context, after a loss     the node stands for election again when it has returned
//	a release fails                            Released and Error; the node goes on as a follower
//	an attempt fails                           AcquireFailed and Error, each new reason logged, and repeated each minute; again after Retry's delay
//	the first fails, and no other can succeed  Stopped; Start, Run and WaitForLeadership return an error that matches ErrPermanent
//	Retry wants no more                        Stopped; Run and WaitForLeadership return ErrGaveUp
//	a callback panics                          logged and reported to OnError
//	a callback takes more than a second        logged by its name; renewal goes on, transitions wait
//	work panics                                it is the caller's, as in any function; Run shuts down first what it started
//	attempts come without a pause              after a few they are 50 ms apart, whatever Retry or the backend says
package leader
