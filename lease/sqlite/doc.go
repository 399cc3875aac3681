// Package sqlite keeps leases in a file, with SQLite inside the process: a lease.Store that needs
// no server.
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
//     the disk first. So a granted, renewed or released lease stays so after kill -9 and a power
//     failure, and no token is granted twice. With Relaxed that holds for kill -9 only.
//   - One process has the file. A second Open, by any process, fails with ErrInUse. On Linux this
//     includes other names of the file, such as a hard link or a mount.
//   - Each transaction happens at one moment of the store's clock. At Open, that is the wall clock.
//     From there it follows a clock that nobody sets. On Linux, that clock keeps running while the
//     machine is suspended. Every commit stores its time, and so does the first Get or List that
//     reports an expiry. Open starts no earlier than the last stored time. So if the wall clock is
//     set back, that prolongs no lease, revives none that was reported as expired, and repeats no
//     token.
//   - A failed transaction leaves nothing, in the file or in memory. A file that is damaged, lost
//     or cut is refused, not taken for an empty one. Open detects it; or, if the file is larger
//     than 32 MB, the operation that reads the damaged part. Each row has a checksum.
//   - Tokens rise even if the file, its -wal or its -shm is lost or damaged. They are reserved in
//     the file itself, a million at a time, before the first is given. A store that was not closed
//     continues above the reserve.
//   - The duration of Open, and the number of names that a sweep reads, do not grow with the number
//     of names.
//   - Get and List read only committed and synced data. They do not wait for the queue, and
//     block no other operation.
//
// # What it does not guarantee
//
// It is one file on one machine. While the machine is down nobody gets a lease, and if the disk is
// lost, so are the leases. A disk that reports a sync that it has not done, and a network file
// system, where SQLite's WAL cannot be shared, void the guarantees.
//
// The clock does not run while the store is closed and the wall clock is set back. Then leases last
// longer by as much, and ExpiresAt is ahead of the wall clock, so use Remaining. If the wall clock
// is set forward while the store is closed, leases end early. When it is corrected, the store's
// clock is ahead of it, and stands still while the store is closed. That does no harm after the
// longest TTL. Then, with the store closed, you can end it by UPDATE state SET seen_at = 0.
//
// The store cannot distinguish a WAL that was lost or cut after a crash from one that was shorter.
// The content of the lost part is forgotten, including leases. Tokens fence their holders.
//
// A copy of the file alone while it is open is no backup. Use VACUUM INTO or the sqlite3 shell's
// .backup. The store cannot distinguish a restored backup from the file itself, and the backup may
// not know of the tokens that were granted after it. So raise state.floor first.
//
//	UPDATE state SET floor = max(floor, reserved) + 1000000000;
//
// # How it works
//
// One goroutine writes. It takes all waiting requests, decides them one after the other in one
// transaction, syncs once, and answers all. While it syncs, the next requests gather.
//
//	Acquire ┐                ┌───────────────── writer ─────────────────┐
//	Renew   ├─▶ ··· queue ··· ─▶ BEGIN ▸ decide ··· decide ▸ COMMIT ▸ answer all
//	Release ┘                └──────────────────────────────────────────┘
//	Get, List ─────────────────▶ connections of their own, WAL
//
// With Durable, SQLite runs with synchronous=FULL: COMMIT syncs the WAL, and only then shows the
// transaction to readers. With Relaxed it runs with synchronous=NORMAL, in which a file is never
// damaged. What a killed process left in the WAL is written and synced again before it is used: its
// last sync may have failed.
//
// The writer caches rows that it committed, up to Config.CacheBytes. If another program changes the
// file, such as an operator in the sqlite3 shell, the next transaction sees the change.
//
// A sweep reads the table due. In it, each name has one place: the time of its next possible work.
// The sweep moves, counts or forgets the names whose time has come, at most SweepRequest.Limit, 32
// per transaction. After 10 ms it begins no further transaction, and SweepResult.More then says
// that there is more. A released name keeps its place until its lease would have ended, for up to
// five minutes. So with a shorter Retention, it may be kept that much longer. A name that is not
// stored gets a token above all that were ever given. The table expiring counts the held leases, by
// periods of ten seconds.
//
// # When things go wrong
//
// Health, which a lock server's probes call, returns what a change would return now.
//
//	another program has the file locked    *lease.BusyError after Config.BusyTimeout; Stats.Busy counts it
//	too many requests wait (65,536)        *lease.BusyError; Stats.Busy counts it
//	the disk is full                       *lease.BusyError that is ErrFull; work resumes when there is space
//	the file cannot be written             ErrReadOnly; work resumes when it can
//	reading or writing fails               ErrIO: whether the transaction was kept is unknown; the file is opened anew
//	a sync fails                           ErrIO: whether the transaction was kept is unknown; readers see what was synced; work
//	                                       resumes when a sync succeeds
//	the file is damaged, a table is gone   ErrCorrupt, from Open, which reads all of it up to 32 MB, or from then on
//	the WAL is lost, cut or damaged        its content is forgotten; tokens rise all the same; Open warns, unless it was cut
//	                                       at its end, which cannot be detected
//	another program reads during Open      *lease.BusyError after Config.BusyTimeout, if it keeps the WAL from being moved
//	the file is lost, path.lock is there   ErrCorrupt: remove path.lock too to begin anew
//	another Store has the file             ErrInUse
//	the file belongs to something else     ErrForeign; it stays unchanged
//	the file has another schema version    ErrForeign; it stays unchanged
//	the directory does not exist           ErrMissing
//	the context ends                       its cause: requests not yet begun are dropped, others may still take effect
//	the process is killed                  answered changes are kept; the next Open needs no repair, and skips up to a million tokens
//	the store is closed                    ErrClosed; earlier requests are answered first
package sqlite
