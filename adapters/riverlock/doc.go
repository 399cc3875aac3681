// Package riverlock makes River jobs that work on the same entity run one at a time, in all
// processes, without blocking a worker.
//
//	locks, err := riverlock.New(locker, pool, riverlock.Config{
//		Key: riverlock.Args(func(a SyncArgs) namespace.Key { return Agents.ID(a.Agent) }),
//	})
//	…
//	defer locks.Close() // after the client has stopped, before the Locker is closed
//	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
//		Middleware: []rivertype.Middleware{locks},
//		…
//	})
//
// River's unique jobs prevent the insertion of a second job. They do not keep two different jobs of
// one entity from running at the same time. A job that takes the lock itself has two bad ways to
// wait. It can block a worker, and then enough jobs of one busy entity block all workers. Or it can
// return river.JobSnooze, and then it sleeps on although the entity is free.
//
// # What it does
//
// A job whose key is held waits briefly (Config.Wait), with at most eight jobs per process and key.
// Then it is snoozed, and its metadata names the key (MetadataKey). When a job of the key has
// ended, its process releases the lock. The process then makes the next snoozed jobs available, in
// the order of their priority and id, and notifies their queues. A snooze does not use up an
// attempt: River counts it in the metadata ("snoozes") and takes the attempt back.
//
//	fetched ──▶ key is free ──▶ worked under the lock ──▶ lock released ──▶ wakes the next
//	   ▲   └──▶ key is held ──▶ waits for Config.Wait ──▶ snoozed              │
//	   └───────────────────────────────────────────────────────────────────────┘
//
// # What it guarantees
//
//   - One job of a key runs at a time, in all processes and queues. It also excludes every other
//     program that takes the key through pglatch. The limits of package advisory apply.
//   - The context of a job ends when its lock is lost, with a *advisory.LostError as its cause. The
//     attempt then fails with that error, even if the job returned nil, because another job may
//     have run meanwhile. River retries it as after any error.
//   - A panic releases the lock, and wakes the next job.
//   - A job that did not get its lock has not run, and has used no attempt. This holds even if
//     PostgreSQL was out of reach or the Locker had no free connection.
//
// # Who wakes a job
//
//	a job of the key ends                     at once; it is fetched when River next fetches (Config.FetchCooldown)
//	it ended before the snooze was stored     the process that snoozed checks again, after 50 ms and then less and less often
//	the holder died, or is no job of River    the same, within Config.Watch of the key being free
//	the process that snoozed died too         a job that ends, or the end of the snooze, at most Config.Snooze
//	a notification is lost, or River polls    River's own poll (river.Config.FetchPollInterval)
//	the queue is paused                       other jobs are woken; its jobs continue when it is resumed, or at the end of the snooze
//
// # What it does not guarantee
//
// It guarantees no order: a job that was just inserted can overtake snoozed ones. If the next job
// of a key is in a queue that no client works on, no job of the key runs until the end of a snooze.
// The work of a job is not inside the lock's own transaction. If a late write must never win, call
// advisory.LockTx in the transaction that writes. If a process dies, River runs its job again after
// an hour (river.Config.RescueStuckJobsAfter); the lock is free long before.
//
// A held lock, and each job that waits briefly, uses one connection of the Locker, or a share of
// one: see advisory.Config.MaxConns and LocksPerConn. If no connection is free, the job is snoozed.
// Each worked job costs one statement on River's table, by the index on metadata that River's
// migrations create. riverlock uses the table river_job, as of River's migration 7, and River's
// channel for notifications of inserted jobs.
//
// # What it costs in time
//
// 60 jobs, two clients of ten workers. The unit is the time in which the jobs of each key follow
// each other without a gap (BenchmarkBacklog, PostgreSQL 15, two busy cores):
//
//	                        1 key                 4 keys
//	a job takes             20 ms  100 ms 300 ms  20 ms  100 ms 300 ms
//	river.JobSnooze(1 s)    19.2   5.8    2.7     21.3   5.0    2.9
//	riverlock               1.24   1.03   1.02    1.21   1.10   1.13
package riverlock
