// Package sqlite keeps leases in a file, with SQLite inside the process: a
// lease.Store that needs no server.
//
//	store, err := sqlite.Open(ctx, "/var/lib/pglatch/leases.db", sqlite.Config{})
//	…
//	defer store.Close()
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
//
// # What it guarantees
//
// What package lease says of every store, and:
//
//   - An answer is given after the commit of what it says. With Durable, the default,
//     each commit is synced to the disk first, so a lease that was granted, renewed or
//     released stays so over kill -9 and a power failure, and no token is granted twice.
//     With Relaxed that holds for kill -9 only.
//   - One process has the file. A second Open, of any process, fails with ErrInUse; on
//     Linux also by another name of the file, be it a hard link or a mount.
//   - Each transaction happens at one moment of the store's clock: the wall clock at
//     Open, and from there a clock that nobody sets and that, on Linux, runs on while
//     the machine is suspended. Every commit stores its time, and so does the first Get or
//     List that reports an expiry; Open starts no earlier than the last of them, so a wall
//     clock that is set back prolongs no lease, revives none that was reported as one that has
//     expired, and repeats no token.
//   - A transaction that fails leaves nothing, in the file or in memory. A file that is
//     damaged, lost or cut is refused, not taken for an empty one: by Open, or, if it is
//     larger than 32 MB, by who reads what is damaged. Each row has a checksum.
//   - Whatever becomes of the file, of its -wal and of its -shm, tokens rise: they are
//     reserved in the file itself, a million at a time, before the first is given, and a
//     store that was not closed goes on above the reserve.
//   - Open takes no longer, and a sweep looks at no more, the more names there are.
//   - Get and List read what is committed and synced. They wait for a sync that is under
//     way, but not for the queue, and hold nobody up.
//
// # What it does not guarantee
//
// It is one file on one machine: while the machine is down nobody gets a lease, and a
// disk that is lost takes the leases with it. A disk that says synced and is not, and
// a network file system, of which SQLite's WAL cannot be shared, take the promises away. The clock
// does not run while the store is closed and the wall clock is set back: leases then
// last longer by as much, and ExpiresAt is ahead of the wall clock, so go by
// Remaining. One that is set forward while the store is closed ends leases early; when
// it is right again the store's clock is ahead of it, and stands still while the store
// is closed. That harms nobody after the longest TTL, and can be ended then, with the
// store closed, by UPDATE state SET seen_at = 0.
//
// A WAL that was lost or cut after a crash is not distinguished from one that was shorter: what
// it had is forgotten, leases among it. Tokens fence who had them.
//
// Copying the file alone while it is open is no backup; VACUUM INTO and the sqlite3
// shell's .backup are. A backup that is restored is not distinguished from the file itself, and
// may not know of the tokens that were granted after it: raise state.floor first.
//
//	UPDATE state SET floor = max(floor, reserved) + 1000000000;
//
// # How it works
//
// One goroutine writes. It takes all requests that wait, decides them one after the
// other in one transaction, syncs once, and answers all: while it syncs, the next
// gather.
//
//	Acquire ┐                ┌──────────────────── writer ────────────────────┐
//	Renew   ├─▶ ··· queue ··· ─▶ BEGIN ▸ decide ··· decide ▸ COMMIT ▸ sync ▸ answer all
//	Release ┘                └────────────────────────────────────────────────┘
//	Get, List ─────────────────▶ connections of their own, WAL
//
// SQLite itself runs with synchronous=NORMAL, in which a file is never damaged, and
// commits are synced by fdatasync of the WAL after them. Fsync, which SQLite would call
// within COMMIT, also waits for the file system's journal.
//
// It remembers rows that it committed, up to Config.CacheBytes. What another program
// changes in the file, as an operator in the sqlite3 shell may, is seen by the next
// transaction.
//
// A sweep reads the table due, in which each name has one place: the time when there may
// be something to do. It moves, counts or forgets those whose time has come, at most
// SweepRequest.Limit, 32 per transaction, and begins none after 10 ms: SweepResult.More then
// says that there is more. A released name waits in its place for the end that its lease had,
// up to five minutes, so with a shorter Retention it may be kept as much longer. A name that is not stored gets a token above
// all that were ever given. What is held is counted in the table expiring, by periods of
// ten seconds.
//
// # When things go wrong
//
// Health, which a lock server's probes ask, returns what a change would get now.
//
//	another program has the file locked    *lease.BusyError after Config.BusyTimeout; Stats.Busy counts it
//	too many requests wait (65,536)        *lease.BusyError; Stats.Busy counts it
//	the disk is full                       *lease.BusyError that is ErrFull; work goes on when there is space
//	the file cannot be written             ErrReadOnly; work goes on when it can
//	reading or writing fails               ErrIO: whether the transaction was kept is unknown; the file is opened anew
//	a sync fails                           ErrIO, to readers too: whether the transaction was kept is unknown; work goes on
//	                                       when all that was not moved yet is written again and synced
//	the system dropped what a sync did     ErrIO that is lease.ErrBroken, until the process ends: what was acknowledged is kept
//	not write
//	the file is damaged, a table is gone   ErrCorrupt, from Open, which reads all of it up to 32 MB, or from then on
//	the WAL is lost, cut or damaged        what it had is forgotten; tokens rise all the same; Open warns, unless it was cut
//	                                       at its end, which nothing shows
//	another program reads during Open      *lease.BusyError after Config.BusyTimeout, if it keeps the WAL from being moved
//	the file is lost, path.lock is there   ErrCorrupt: remove path.lock too to begin anew
//	another Store has the file             ErrInUse
//	the file is of something else          ErrForeign, and it is left as it is
//	the directory does not exist           ErrMissing
//	the context ends                       its cause: what was not begun is dropped, the rest may still happen
//	the process is killed                  what was answered is kept; the next Open needs nothing, and skips up to a million tokens
//	the store is closed                    ErrClosed; what was accepted before is answered first
package sqlite
