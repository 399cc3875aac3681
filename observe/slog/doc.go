// Package slog logs the events of locks and elections as structured records.
//
//	// import lockslog "github.com/pglatch/pglatch/observe/slog"
//	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn, Tracer: lockslog.Tracer(log, lockslog.Config{})})
//
//	defer lockslog.Watch(log, elector)()                  // who leads, from when to when
//	err = elector.Run(ctx, lockslog.Work(log, elector, work)) // when its work ran: evidence
//
// Locks: long waits, long holds and losses. Attributes: key, label, waited, held, reason, error.
//
//	INFO "lock acquired after a wait"  waited at least Config.Slow
//	INFO "lock not acquired"           failed after a wait as long
//	INFO "lock held for long"          released after Config.Long
//	WARN "lock lost"                   reason is advisory.LossData.Reason
//
// Elections: one record for each start and each end of this node's leadership. Attributes:
// election, the backend's own (key1, key2), identity, term, fencing_token, led, error.
//
//	INFO "leadership acquired", "leadership recovered", "leadership released"
//	WARN "leadership taken away"
//
// advisory.Config.Logger and leader.Config.Logger receive the other events: why attempts fail, panics,
// and skips. Both also log losses. With one logger for both packages, each loss therefore appears
// twice.
//
// # Evidence that work of two terms never met
//
// Work logs when work began and ended, with the term in which it ran. "pglatch leader verify" reads
// these records of all nodes, as slog.JSONHandler writes them. It reports whether the work of two
// terms ever ran at the same time. "pglatch leader run" writes these records as well.
//
//	INFO "work_began"  election, identity, term, fencing_token, clock, began
//	INFO "work_ended"  the same, and ended, lasted, error
//
// began is read before work is called, and ended after it has returned, so the interval covers the
// work. clock identifies the running kernel: processes with the same value share one clock. Between
// different values, verify allows for the clock difference that it was given. lasted is from the
// monotonic clock. With it, verify detects a clock that was set in the meantime.
package slog
