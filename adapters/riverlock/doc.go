// Package riverlock makes jobs of River that work on the same entity run one at a time,
// in all processes, without a worker that is blocked for it.
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
// River's unique jobs keep a second job from being inserted; they do not keep two
// different jobs of one entity apart. A job that locks for itself has two bad ways to
// wait: it blocks a worker, and with enough jobs of one busy entity all workers, or it
// returns river.JobSnooze and sleeps on when the entity is free.
//
// # What it does
//
// A job whose key is held waits for a moment (Config.Wait), at most eight of a process for
// one key. Then it is snoozed, and its metadata name the key (MetadataKey). Whoever has
// worked a job of the key gives the lock back and then makes the next snoozed ones
// available, in the order of their priority and id, and notifies their queues. A snooze
// costs no attempt: River counts it in the metadata ("snoozes") and takes the attempt back.
//
//	fetched ──▶ key is free ──▶ worked under the lock ──▶ lock released ──▶ wakes the next
//	   ▲   └──▶ key is held ──▶ waits for Config.Wait ──▶ snoozed              │
//	   └───────────────────────────────────────────────────────────────────────┘
//
// # What it guarantees
//
//   - One job of a key at a time, in all processes and queues, and nobody else who takes
//     the key through pglatch, with the limits that package advisory states.
//   - The context of a job ends when its lock is lost, with a *advisory.LostError as its
//     cause. The attempt then fails with that error, also if the job returned nil, because
//     another may have run meanwhile, and River retries it as it does after any error.
//   - A panic releases the lock, and wakes the next job.
//   - A job that did not get its lock has not run, and has used no attempt, also if
//     PostgreSQL was out of reach or the Locker had no connection to spare.
//
// # Who wakes a job
//
//	a job of the key ends                     at once; it is fetched when River next fetches (Config.FetchCooldown)
//	it ended before the snooze was stored     the process that snoozed looks again, after 50 ms and then ever more seldom
//	the holder died, or is no job of River    the same, within Config.Watch of the key being free
//	the process that snoozed died too         a job that ends, or the end of the snooze, at most Config.Snooze
//	a notification is lost, or River polls    River's own poll (river.Config.FetchPollInterval)
//	the queue is paused                       others are woken; it goes on when it is resumed, or at the end of the snooze
//
// # What it does not guarantee
//
// No order: a job that was just inserted can pass those that were snoozed. A key whose
// next job is in a queue that no client works stands still until the end of a snooze. The
// work of a job is not inside the lock's own transaction: where no late write may win, take
// advisory.LockTx in the transaction that writes. River runs a job whose process died again
// after an hour (river.Config.RescueStuckJobsAfter); its lock is free long before.
//
// A held lock, and each job that waits for a moment, is one connection of the Locker, or a
// share of one: see advisory.Config.MaxConns and LocksPerConn; without one a job is
// snoozed. Each worked job costs one statement on River's table, by the index on metadata
// that River's migrations make. It uses the table river_job, as River's migration 7 leaves
// it, and the channel on which River is told of inserted jobs.
//
// # What it costs in time
//
// 60 jobs, two clients of ten workers, in units of the time in which the jobs of each key
// follow each other without a gap (BenchmarkBacklog, PostgreSQL 15, two busy cores):
//
//	                        1 key                 4 keys
//	a job takes             20 ms  100 ms 300 ms  20 ms  100 ms 300 ms
//	river.JobSnooze(1 s)    19.2   5.8    2.7     21.3   5.0    2.9
//	riverlock               1.24   1.03   1.02    1.21   1.10   1.13
package riverlock
