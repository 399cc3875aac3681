// Package advisory is a per-entity mutex across processes, built on PostgreSQL advisory locks.
// It is for programs that run as several processes at once. It needs no server but the
// PostgreSQL that they already use.
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
// A lock that is taken outside the transaction it protects cannot be airtight. The server can
// end the holder's session and free the lock before the holder detects the loss. In between,
// two callers can act as holders of the lock. How long that lasts depends on what the holder
// receives:
//
//   - The end of the connection, because the server or a firewall closes it: the holder detects
//     the loss after about a millisecond. At the very beginning of a hold, the connection is
//     not watched yet, so detection takes 5 ms longer. With all processors busy, it took 0.2 s
//     in measurements.
//   - Nothing, because a reset reaches only the server, or the server's clock is set forward
//     while the network is silent. The server frees the lock at once. The holder's context ends
//     at its deadline, which is up to nine tenths of Config.SessionTTL away.
//   - Nothing, because the network is silent in both directions: the holder's context ends
//     before the server frees the lock. Two callers overlap only if the work ignores its context.
//
// If a late write must never win, take the lock inside the transaction, with LockTx.
//
// The package does not work on a standby, which has its own lock space. It does not work
// behind a transaction pooler either, because such a pooler shares sessions between clients.
// Open detects and rejects both. Each database has its own locks. A promoted standby has none of
// the old primary's locks, so other processes can take them there. Meanwhile, a holder that can
// reach only the old primary still acts as the holder of its lock.
//
// # What it guarantees
//
//   - An exclusive lock has one holder at a time, among all processes that use the same key in
//     the same database, in any language. The exceptions are listed above.
//   - A holder that loses its lock is notified: its context ends, with a *LostError as the
//     cause. That takes milliseconds if the end of the connection reaches the holder and a
//     processor is free. If nothing reaches it any more, its context ends before
//     Config.SessionTTL has passed.
//   - If a lock was lost while the process was stopped or its machine suspended, the first check
//     detects the loss. Lock.Lost is such a check. So are Err and Done of Lock.Context, and Err
//     of a context derived from it by context.WithValue. A context derived by
//     context.WithCancel, WithTimeout or an errgroup cannot check the clock: a timer cancels it.
//     The timer also wakes a goroutine that is blocked in a receive. When a stopped process
//     continues, the Go runtime runs the timer within a millisecond. With all processors busy,
//     it took about 200 ms in measurements. When a suspended machine wakes up, this takes up to
//     0.2 s longer.
//   - If Release, Do or DoOrSkip returns nil, the server had not ended the session when the
//     lock was given back. Most releases ask the server. Two kinds do not: a hand-off inside
//     the process, and the release of a reader while other readers keep the lock. They check
//     whether the server has sent anything, and ask it only if it has. Such a check is at most
//     100 µs old and cannot see a message in transit. So a loss can go unnoticed if it
//     happened in the last 100 µs, plus the latency from the server to this process. If the
//     network has gone silent, a loss can go unnoticed until the session's deadline, which
//     comes before SessionTTL has passed.
//   - If a process dies, is stopped or is cut off, its lock becomes free for others. That
//     happens at once if the server sees the connection end, otherwise after
//     Config.SessionTTL.
//   - Nothing is left behind. After an error, a timeout, a cancellation or a panic, every lock
//     that the Locker still holds at the server belongs to a Lock that a caller has. No
//     connection returns to the pool while it holds, or may hold, a lock.
//   - A waiter gets the lock or a typed error within its timeout. A canceled waiter gets the
//     cause of its context at once (after 100 ms if the server is silent). Waiters of one
//     process are served in order.
//   - Across all processes, only one waiter at a time, or several readers together, waits for the
//     key itself. That waiter holds a second lock, the key's turnstile. The others queue for the
//     turnstile in PostgreSQL, in steps of at most a second. No reader gets the key while a
//     writer holds the turnstile. Order is not strict: an exclusive request overtakes the waiter
//     if it finds the key free between two of the waiter's steps. A process can hand a lock from
//     one of its callers to the next. After Config.HandOverBudget it gives the lock back to the
//     server. Transactions (LockTx) wait in the same queue.
//   - Waits disturb nothing else. A wait blocks no CREATE INDEX CONCURRENTLY for longer than a wait
//     step, holds no old snapshot, and writes nothing to the server's log. (A transaction that
//     waits in LockTx has a snapshot, as transactions do.) A canceled wait can cause a log line: up
//     to version 17, PostgreSQL sends two signals for a cancel request, and the second can arrive
//     after the wait has ended. The first can arrive before the server has begun the wait. In
//     either case the server logs "canceling statement due to user request". On a busy machine,
//     this happened in one of 20,000 canceled waits, and in one of 6,000 that ended within 5 ms. It
//     has no other effect.
//   - All keys share the same statements: pg_stat_statements shows about 30 entries.
//
// # How it works
//
// A held lock occupies one connection of the Locker's own pool. Nothing else happens on that
// connection, unless many locks share few connections (see below). The server ends a session that
// is silent for SessionTTL. Pings keep it alive, and the holder's deadline comes before the
// server's.
//
//	Acquire ──▶ local queue of the key ──▶ first: try ──▶ wait in steps ──▶ held
//	               (no connection)           (one session)                     │
//	                     ▲                                    hand-over inside │ Release
//	                     └──────────────────────────────────── the process ◀───┴──▶ unlocked
//
// Only the first waiter of a process for a key uses a connection. Readers of one process share one
// lock at the server. When a new reader arrives, the Locker asks the server whether a writer is
// waiting, unless it asked less than HandOverBudget ago.
//
// For HandOverBudget (10 ms by default), a released lock passes to the next waiter of the same
// process without a round trip. Then other processes get their turn. Before each hand-off the
// Locker checks the socket. When PostgreSQL ends a session, it first sends the client the reason,
// and only then releases the session's locks (PostgreSQL manual, "Message Flow", Termination).
// The kernel closes the connection of a backend that was killed. If anything but the answer to a
// statement has arrived, the Locker does not hand the lock off. It releases the lock at the
// server instead, and the server's answer says whether the lock was still held. If it was not,
// the holder gets its *LostError and the waiter queues at the server.
//
// Some sockets cannot be checked: all on Windows, and those that the caller's own DialFunc
// makes if they are neither a *net.TCPConn nor a *net.UnixConn. There the Locker always asks
// the server.
//
// # How long a request waits
//
// A request ends with its context or after a time limit, whichever comes first. The limit is
// Options.Wait if that is set, otherwise Config.Wait. For LockTx it is TxOptions.Wait. It covers
// everything that the request needs, such as a free connection. The error is a *TimeoutError. It
// matches the cause of the context only if the context's deadline ended the wait. A canceled
// request returns the cause of its context.
//
// # Many locks on few connections
//
// With Config.LocksPerConn = K, a connection carries up to K locks. A new lock goes to a
// connection that has room. If none has room, the Locker opens another one. Tries and releases
// that arrive while a statement is under way go out together in the next statement, so one
// round trip serves many callers. A try or release on its own is the same plain statement as
// with one lock per connection. Guarantees, errors and methods are the same too, and Lockers
// with different K exclude each other. The differences are:
//
//   - A connection that ends takes all its locks with it, K at most. pg_terminate_backend on
//     one session ends them all. A holder that checks its lock learns of the loss at its first
//     check. Holders that are blocked in a channel receive are notified one after the other.
//     That takes 2 to 4 µs of processor time for each lock: 2 to 4 ms for 1,000 locks, 20 to
//     40 ms for 10,000. If the processors are busy, it takes proportionally longer.
//   - A request for a key that another process holds waits on a connection that takes no new
//     locks meanwhile, so it delays no other request. Once granted, the lock stays on that
//     connection until it is released. The Locker never moves it: a move would be a release and
//     an acquisition, and another process could take the lock in between.
//   - A request can wait on an idle connection that carries locks on other keys. A release on
//     that connection then takes some milliseconds longer, because it interrupts the wait. A new
//     lock also interrupts a wait if no other connection has room for it.
//   - If requests wait for more keys than there are connections, the keys take turns on the
//     connections, each for up to 900 ms. The Locker also tries each key every 50 to 400 ms.
//     While the keys take turns, it keeps none of their turnstiles.
//   - Besides MaxConns × LocksPerConn, the Locker has another limit, MaxLocks. It exists
//     because a process that fills the server's lock table leaves no room for anything else,
//     not even for a login or a query.
//   - The Locker does not watch a connection in the first 5 ms after each statement on it. With
//     one lock per connection, only the first 5 ms of a hold are not watched.
//   - Locks of AcquireAll and AcquireSlot share connections with other locks. If AcquireAll
//     had to wait for a key, its keys can be on several connections. If any of these ends, the
//     whole Lock is lost. The keys on the others are given back when the Lock is released.
//
// # When things go wrong
//
//	the server ends the session      context ends at once, cause *LostError; Release returns it
//	a reset reaches only the server  lock free at once; context ends before SessionTTL has passed
//	the network goes silent          context ends before SessionTTL has passed, and earlier by LossDrain; lock free after SessionTTL
//	the process is stopped           lock free after SessionTTL; the first check finds the context ended
//	the process is killed            lock free at once
//	somebody holds the lock          *TimeoutError, *HeldError or ran = false; the errors name the holder and since when
//	the same context holds it        ErrReentrant at once; the outer lock stays held
//	goroutines wait in a cycle       ErrDeadlock at once in one process; across processes with
//	                                 Config.BreakDeadlocks within seconds, else *TimeoutError;
//	                                 transactions (LockTx) after deadlock_timeout, 1 s by default;
//	                                 readers of one key form a cycle only if a writer waits between them
//	two Lockers of one process       if they use one database, re-entrance and cycles through both are detected at
//	                                 once, except a cycle in which a reader waits behind a writer of the other Locker
//	no connection is free            ErrPoolExhausted, at once if the caller holds locks
//	a standby is promoted            locks on the old primary are lost, and the Locker continues on the promoted server
//	an old primary comes back        ErrOtherServer, which matches ErrUnavailable, unless another host of the DSN is the right one
//	the database moves (pg_upgrade)  ErrOtherServer until the Locker is closed and another is opened
//	the server is down               ErrUnavailable, for waits too; the Locker recovers by itself
//	the server refuses the client    ErrRefused, for waits too: a password, role, database, privilege, login trigger or
//	                                 certificate; retries fail until the cause is fixed
//	the server's lock table is full  ErrLockTableFull, also at the Locker's own limit
//	the Locker is closed             ErrClosed for waiters; holders lose their locks, with ErrClosed as the cause
package advisory
