// Package advisory is a per-entity mutex for programs that run more than once, on
// the PostgreSQL that they already use.
//
//	var Agents = namespace.Must(1, "agent")
//
//	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn})
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//
//	err = locker.Do(ctx, Agents.ID(42), func(ctx context.Context) error {
//		return process(ctx, 42) // nobody else does, in any process
//	})
//
//	ran, err := locker.DoOrSkip(ctx, Agents.ID(42), reap) // or skip if somebody does
//
// # What it does not guarantee
//
// A lock that is not inside the transaction it protects cannot be airtight.
// Between the moment when the server ends a session and the moment when the
// holder knows, two may act as holders of the lock. How long that is depends on what
// the holder receives:
//
//   - The end of the connection, because the server or a firewall closes it: about a
//     millisecond, and 5 ms longer at the very beginning of a hold, which is not watched
//     yet. With all processors busy 0.2 s were measured.
//   - Nothing, because a reset reaches only the server, or the server's clock is set forward
//     while the network is silent: up to nine tenths of Config.SessionTTL. The server
//     frees the lock at once, and the holder's context ends at its deadline.
//   - Nothing, because the network is silent to both: the holder's context ends before
//     the server frees the lock. Only work that looks at its context stops.
//
// Where no late write may win, take the lock inside the transaction, with LockTx.
//
// It does not work on a standby, which has a lock space of its own, nor behind a
// transaction pooler, which shares sessions between clients. Open finds and
// refuses both. Locks are per database. A promoted standby has none of the old primary's
// locks: other processes can take them there while a holder that is cut off from the
// promotion still believes in its own.
//
// # What it guarantees
//
//   - One holder of an exclusive lock at a time, in all processes that use the same
//     key in the same database, from any language, but for what is said above.
//   - A holder whose lock is gone is told: its context ends, with a *LostError as its
//     cause, within milliseconds if the end of the connection reaches it and a processor is
//     free, and before Config.SessionTTL is over if it receives nothing any more.
//   - A process that was stopped, or whose machine was suspended, finds its lock lost at
//     the first look at Lock.Context (its Err or Done, and Err of what
//     context.WithValue made of it) or Lock.Lost. Go lets no context that
//     context.WithCancel, WithTimeout or an errgroup derived from it look for itself:
//     such a context, and who is blocked in a receive, is told by a timer, as soon as the
//     Go runtime runs one after a stop (a millisecond; some 200 ms were seen with all
//     processors busy), and up to 0.2 s later after a suspension.
//   - Nil from Release, Do or DoOrSkip is no false all-clear: the server had not ended
//     the session when the lock was given back. Most releases ask the server. One that
//     passes the lock on inside the process, and that of a reader whom others outlast,
//     look instead whether anything has come from the server, and ask it if so. Such a
//     look is at most 100 µs old, and it cannot see a message that is still on its way.
//     So nil is true up to 100 µs and the way from the server to this process. If the
//     network has gone silent, that way ends with the deadline of the session, before
//     SessionTTL is over.
//   - The lock of a process that died, was stopped or was cut off is free for others:
//     at once if the server receives the end of its connection, else after Config.SessionTTL.
//   - Nothing is left behind. After an error, a timeout, a cancellation or a panic
//     PostgreSQL has no lock of ours that no handle owns, and no connection goes back
//     to the pool with a lock on it or in doubt.
//   - A waiter gets the lock or a typed error within its timeout, and a canceled one
//     its cause at once (after 100 ms if the server is silent). Waiters of one process are
//     served in order. Between processes one at a time waits for a key, and readers together: it has
//     the key's turnstile, a second lock, for which the others stand in line in PostgreSQL's
//     queue, in steps of a second at most. No reader comes in while a writer has the
//     turnstile. An exclusive request that finds the key free between two wait steps of the
//     waiter can pass it. A process that passes the lock on inside gives it back after
//     Config.HandOverBudget. Transactions (LockTx) stand in the same line.
//   - Waiting harms nobody: it blocks no CREATE INDEX CONCURRENTLY for longer than a
//     wait step, holds no old snapshot, and writes nothing to the server's log. (A transaction
//     that waits in LockTx has a snapshot, as transactions do.) The exception is a canceled
//     wait: PostgreSQL signals a cancel request twice, and the second signal can come when the
//     wait has ended. Then it logs "canceling statement due to user request", after one in
//     5,000 canceled waits on a busy machine, and nothing else comes of it.
//   - Different keys are no different statements: pg_stat_statements gets some 30 entries.
//
// # How it works
//
// A held lock is one connection of the Locker's own pool, on which nothing else
// happens, unless many share a few. The server ends a session that is silent for SessionTTL; pings keep it,
// and the holder's deadline comes before the server's.
//
//	Acquire ──▶ local queue of the key ──▶ first: try ──▶ wait in steps ──▶ held
//	               (no connection)           (one session)                     │
//	                     ▲                                    hand-over inside │ Release
//	                     └──────────────────────────────────── the process ◀───┴──▶ unlocked
//
// Only the first waiter of a process for a key uses a connection, and readers of one
// process share one lock at the server, each HandOverBudget after asking whether a writer
// waits. A released lock
// passes to the next waiter of the same process without a round trip, for 10 ms;
// then other processes get their turn. Before that the Locker looks at the socket:
// PostgreSQL tells its client why a session ends before it lets the locks of the
// session go (PostgreSQL manual, "Message Flow", Termination), and the kernel closes
// the connection of a backend that was killed. If anything has come that is not the
// answer to a statement, the lock is not passed on but released at the server, whose
// answer says whether it was held; if it was not, the holder gets its *LostError and
// the waiter queues at the server. Connections that a DialFunc of the caller's makes,
// and that are neither a *net.TCPConn nor a *net.UnixConn, cannot be looked at, nor can
// any on Windows: there the server is always asked.
//
// # How long a request waits
//
// A request ends with its context, or after one duration, whichever comes first. The duration
// is Config.Wait, or Options.Wait in its place; for LockTx it is TxOptions.Wait. It covers
// everything that the request needs, such as a free connection. The error is a *TimeoutError,
// which matches the context's error only if a deadline ended the wait. A canceled request
// returns the cause of its context.
//
// # Many locks on few connections
//
// With Config.LocksPerConn = K, a connection carries up to K locks. A new lock goes to a
// connection that has room, and another one is made when none has. Tries and releases that
// come while a statement is on its way go out together in the next, so that a round trip
// serves many callers; a single one is the same plain statement as with one lock for each
// connection. Guarantees, errors and methods are the same, and Lockers of any K exclude
// each other. What differs:
//
//   - A connection that ends takes all locks that it carries with it, K at most. A person who
//     ends a session with pg_terminate_backend ends them all. Each holder that looks learns it
//     at its first look. Holders that are blocked in a receive are notified one after the other,
//     which takes the processor some 2 µs for each lock: 2 ms for 1,000 locks, 20 ms for 10,000,
//     and as much longer as the processors are busy.
//   - A key that another process holds waits on a connection that takes no new locks
//     meanwhile, so that it holds up nobody. A lock that is won there lives there
//     until it is released. It is never moved, because that would be a release and
//     an acquisition, between which another process could take it. A connection that
//     carries locks and has nothing to do can wait for other keys; a release on it then
//     takes some milliseconds longer, because it interrupts the wait. With more keys than
//     connections to wait on, they take turns of up to 900 ms, and each is tried every 50
//     to 400 ms besides; then none keeps its turnstile. A new lock for which no connection has
//     room interrupts a wait.
//   - The Locker has a limit of its own, MaxLocks, beside MaxConns × LocksPerConn:
//     a process that fills the server's lock table leaves nobody room, not even for a
//     login or a query.
//   - The first 5 ms after a statement on a connection are not watched, not only the
//     first 5 ms of a hold.
//   - AcquireAll and AcquireSlot share connections with other locks. Keys of one AcquireAll
//     for which it had to wait live elsewhere than the others; the end of any of their
//     connections is the loss of the Lock, whose other keys go back when it is released.
//
// # When things go wrong
//
//	the server ends the session      context ends at once, cause *LostError; Release returns it
//	a reset reaches only the server  lock free at once; context ends before SessionTTL is over
//	the network goes silent          context ends before SessionTTL is over, by LossDrain earlier; lock free after SessionTTL
//	the process is stopped           lock free after SessionTTL; context found ended on waking
//	the process is killed            lock free at once
//	somebody holds the lock          *TimeoutError, *HeldError or ran = false, with who and since when
//	the same context holds it        ErrReentrant at once; the outer lock stays held
//	goroutines wait in a circle      ErrDeadlock at once in one process; across processes with
//	                                 Config.BreakDeadlocks within seconds, else *TimeoutError;
//	                                 transactions (LockTx) after deadlock_timeout, 1 s by default;
//	                                 readers of one key are no circle unless a writer stands between them
//	two Lockers of one process       on one database they know of each other: re-entrance and circles through both are
//	                                 found at once, but for a circle in which a reader waits behind a writer of another Locker
//	no connection is free            ErrPoolExhausted, at once if the caller holds locks
//	a standby is promoted            locks on the old primary are lost, and the Locker goes on at the promoted server
//	an old primary comes back        ErrOtherServer, an ErrUnavailable, unless another host of the DSN is the right one
//	the database moves (pg_upgrade)  ErrOtherServer until the Locker is closed and another is opened
//	the server is down               ErrUnavailable, for waits too; the Locker recovers by itself
//	the server refuses the client    ErrRefused, for waits too: a password, role, database, right, login trigger or
//	                                 certificate; nothing changes by itself
//	the server's lock table is full  ErrLockTableFull, also at the Locker's own limit
//	the Locker is closed             ErrClosed for waits; a loss for holders
package advisory
