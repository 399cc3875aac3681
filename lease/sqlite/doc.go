// Package sqlite keeps leases in a file, with SQLite in the program's own process. It is a
// lease.Store that needs no server.
//
//	store, err := sqlite.Open(ctx, "/var/lib/pglatch/leases.db", sqlite.Config{})
//	…
//	defer store.Close()
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
//
// # What it guarantees
//
// The guarantees of package lease, and:
//
//   - An answer is given only after its commit. With Durable, the default, each commit is synced to
//     the disk first. So after kill -9 or a power failure, each lease is still granted, renewed or
//     released as the answer said, and no token is granted twice. With Relaxed, this is true only
//     after kill -9.
//   - Only one process can have the file open. A second Open, by any process, fails with
//     ErrInUse. On Linux this includes other names of the file, such as a hard link or a mount.
//   - Each transaction happens at one moment of the store's clock. At Open, that is the wall clock.
//     From then on it follows a clock that cannot be set. On Linux, that clock keeps running while
//     the machine is suspended. Every commit stores its time, and so does the first Get or List
//     that reports an expiry. Open starts no earlier than the last stored time. So if the wall
//     clock is set back, no lease becomes longer, no lease that was reported as expired becomes
//     valid again, and no token is repeated.
//   - A failed transaction leaves nothing behind, in the file or in memory. A file that is
//     damaged, lost or truncated is refused, and not mistaken for an empty one. Open detects the
//     damage; if the file is larger than 32 MB, the operation that reads the damaged part detects
//     it. Each row has a checksum.
//   - Tokens rise even if the file, its -wal or its -shm is lost or damaged. They are reserved in
//     the file itself, a million at a time, before the first of them is given out. A store that
//     was not closed continues above the reserved tokens.
//   - The duration of Open, and the number of names that a sweep reads, do not grow with the number
//     of names.
//   - Get and List read only committed and synced data. They do not wait for the queue, and
//     block no other operation.
//
// # What it does not guarantee
//
// It is one file on one machine. While the machine is down, nobody gets a lease, and if the disk
// is lost, so are the leases. The guarantees do not hold on a disk that reports syncs that it has
// not done, or on a network file system, where SQLite's WAL cannot be shared.
//
// If the wall clock is set back while the store is closed, the store's clock loses that time.
// Leases then last longer by as much, and ExpiresAt is ahead of the wall clock, so use Remaining.
// If the wall clock is set forward while the store is closed, leases end early. When the wall clock
// is corrected, the store's clock is ahead of it. Until the wall clock catches up, the store's
// clock stands still while the store is closed. Once the longest TTL has passed, this no longer
// does harm. You can then correct the store's clock, with the store closed, by UPDATE state SET
// seen_at = 0.
//
// If a WAL was lost or truncated after a crash, the store cannot distinguish it from one that was
// always that short. The content of the lost part is forgotten, including leases. Their holders
// are fenced off by tokens.
//
// A plain copy of only this file, made while the store is open, is not a backup. Use VACUUM INTO
// or the sqlite3 shell's .backup. The store cannot distinguish a restored backup from the original
// file, and the backup does not contain tokens that were granted after it was made. So after a
// restore, raise state.floor first.
//
//	UPDATE state SET floor = max(floor, reserved) + 1000000000;
//
// # How it works
//
// One goroutine writes. It takes all waiting requests, decides them one after the other in one
// transaction, syncs once, and answers all of them. While it syncs, the next requests are
// collected.
//
//	Acquire ┐                ┌───────────────── writer ─────────────────┐
//	Renew   ├─▶ ··· queue ··· ─▶ BEGIN ▸ decide ··· decide ▸ COMMIT ▸ answer all
//	Release ┘                └──────────────────────────────────────────┘
//	Get, List ─────────────────▶ connections of their own, WAL
//
// With Durable, SQLite runs with synchronous=FULL: COMMIT syncs the WAL, and only then shows the
// transaction to readers. With Relaxed it runs with synchronous=NORMAL, which never damages the
// file. The part of the WAL that a killed process left is written and synced again before it is
// used, because its last sync may have failed.
//
// The writer caches rows that it committed, up to Config.CacheBytes. If another program changes the
// file, such as an operator in the sqlite3 shell, the next transaction sees the change.
//
// A sweep reads the table named due. In it, each name has one entry: the time at which the sweep
// may next have work with that name. The sweep moves, counts or forgets the names whose time has
// come, at most SweepRequest.Limit, 32 per transaction. After 10 ms it begins no further
// transaction, and SweepResult.More then reports that there is more to do. The entry of a released
// name stays until its lease would have ended, for up to five minutes. So with a shorter Retention,
// the name may be kept that much longer. A name that is not stored gets a token above all that were
// ever given out. The table named expiring counts the held leases, in periods of ten seconds.
//
// # When things go wrong
//
// Health, which a lock server's probes call, returns the error that a change would return now.
//
//	another program has the file locked    *lease.BusyError after Config.BusyTimeout; Stats.Busy counts it
//	too many requests wait (65,536)        *lease.BusyError; Stats.Busy counts it
//	the disk is full                       *lease.BusyError that is ErrFull; work resumes when there is space
//	the file cannot be written             ErrReadOnly; work resumes when it can
//	reading or writing fails               ErrIO: whether the transaction was kept is unknown; the file is opened again
//	a sync fails                           ErrIO: whether the transaction was kept is unknown; readers see what was synced; work
//	                                       resumes when a sync succeeds
//	the file is damaged, a table is gone   ErrCorrupt, from Open, which reads the whole file if it has up to 32 MB, or from the operation that detects it
//	the WAL is lost, cut or damaged        its content is forgotten; tokens still rise; Open warns, unless the WAL was cut
//	                                       at its end, which cannot be detected
//	another program reads during Open      *lease.BusyError after Config.BusyTimeout, if the other program prevents a checkpoint of the WAL
//	the file is lost, path.lock is there   ErrCorrupt: to start over, remove path.lock too
//	another Store has the file             ErrInUse
//	the file belongs to something else     ErrForeign; it stays unchanged
//	the file has another schema version    ErrForeign; it stays unchanged
//	the directory does not exist           ErrMissing
//	the context ends                       the context's cause: requests not yet begun are dropped, others may still take effect
//	the process is killed                  answered changes are kept; the next Open needs no repair, and skips up to a million tokens
//	the store is closed                    ErrClosed; earlier requests are answered first
package sqlite
