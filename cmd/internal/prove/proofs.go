package prove

const (
	held       = "a free lock was refused"
	apartFirst = "two sessions held one exclusive lock at once"

	pageAdvisory  = "explicit-locking.html#ADVISORY-LOCKS"
	pageFunctions = "functions-admin.html#FUNCTIONS-ADVISORY-LOCKS"
	pageInfo      = "functions-info.html"
)

// begins is what each proof inside a transaction expects first.
var begins = expectation{id: "transactions", wrong: "transactions are refused: the pooler is in statement mode"}

// proofs returns all proofs in their order. The first ones decide which of the others can be tried.
func proofs() []proof {
	return []proof{
		{name: oneServer, holds: "three connections reached one server", source: pageInfo, observe: observeOneServer, expects: []expectation{
			{id: "same", wrong: "connections reach different servers, each with locks of its own: name the primary alone"},
		}},
		{name: primary, holds: "not a standby, and it writes", source: "hot-standby.html", observe: observePrimary, expects: []expectation{
			{id: "primary", wrong: "a standby, which has locks of its own and would grant a key twice: connect to the primary"},
			{id: "writes", with: true, wrong: "read-only transactions by default (default_transaction_read_only): only lock sessions override that"},
			{id: "independent", with: true, optional: true, wrong: "a logical replica, whose locks are its own: let all programs use this server, or all the publisher"},
		}},
		{name: pooler, holds: "no pooler that shares sessions", source: pageAdvisory, observe: observePooler, expects: []expectation{
			{id: "apart", wrong: "a pooler gives one session to many clients: connect directly, or in session mode (PgBouncer: pool_mode=session)"},
			{id: "transactions", wrong: "it refuses transactions"},
			{id: "direct", with: true, wrong: "a pool_size of at least the lock connections of all replicas: a pooler in session mode is between"},
		}},
		{name: exclusion, session: true, holds: "a second session is refused until the first unlocks", source: pageAdvisory, observe: observeExclusion, expects: []expectation{
			{id: "granted", wrong: held},
			{id: "refused", wrong: "two sessions held one exclusive lock at once"},
			{id: "refusedSingle", wrong: "two sessions held one exclusive lock of a bigint at once"},
			{id: "independent", wrong: "another key was refused"},
			{id: "again", wrong: "a lock was not free after its unlock"},
		}},
		{name: sharedMode, session: true, holds: "readers share, and exclude a writer", source: pageFunctions, observe: observeShared, expects: []expectation{
			{id: "granted", wrong: held},
			{id: "both", wrong: "a second reader was refused"},
			{id: "writerRefused", wrong: "a writer held the lock beside readers"},
			{id: "writer", wrong: "a writer was refused after the readers had unlocked"},
			{id: "readerRefused", wrong: "a reader held the lock beside a writer"},
		}},
		{name: lockTable, session: true, holds: "pg_locks shows who holds what", source: "view-pg-locks.html", observe: observeLockTable, expects: []expectation{
			{id: "empty", wrong: "pg_locks shows a lock that nobody holds"},
			{id: "held", wrong: held},
			{id: "shown", wrong: "pg_locks does not show a lock with the pid of its holder"},
		}},
		{name: queue, session: true, holds: "waiters get a lock in the order of their requests", source: pageAdvisory, observe: observeQueue, expects: []expectation{
			{id: "held", wrong: held},
			{id: "waits", wrong: "pg_advisory_lock did not wait for the holder"},
			{id: "first", wrong: "the second waiter got the lock before the first"},
			{id: "one", wrong: "two waiters got the lock at once"},
			{id: "next", wrong: "the server granted the second waiter the lock, and the lock was not its own"},
		}},
		{name: unlock, session: true, holds: "the answer says whether the lock was held; each lock needs its unlock", source: pageFunctions, observe: observeUnlock, expects: []expectation{
			{id: "notHeld", wrong: "the unlock of a lock that was not held was answered with true"},
			{id: "held", wrong: held},
			{id: "others", wrong: "a session unlocked what another held"},
			{id: "unlocked", wrong: "the unlock of a lock that was held was answered with false"},
			{id: "counted", wrong: "a lock that was taken twice was free after one unlock"},
			{id: "freed", wrong: "a lock that was taken twice was not free after two unlocks"},
		}},
		{name: endOfSession, session: true, holds: "the lock is free when its session ends", source: pageAdvisory, observe: observeEnd, expects: []expectation{
			{id: "held", wrong: held},
			{id: "refused", wrong: apartFirst},
			{id: "freed", wrong: "the lock of a session that has ended is still refused"},
		}},
		{name: terminated, session: true, holds: "pg_terminate_backend frees the lock, and ends the session", source: "functions-admin.html#FUNCTIONS-ADMIN-SIGNAL", observe: observeTerminated, expects: []expectation{
			{id: "held", wrong: held},
			{id: "refused", wrong: apartFirst},
			{id: "freed", wrong: "the lock of a terminated session is still refused"},
			{id: "told", wrong: "a terminated session goes on"},
		}},
		{name: lease, session: true, holds: "the server ends a silent session after its idle_session_timeout", source: "runtime-config-client.html#GUC-IDLE-SESSION-TIMEOUT", observe: observeLease, expects: []expectation{
			{id: "set", wrong: "idle_session_timeout cannot be set"},
			{id: "held", wrong: held},
			{id: "ended", wrong: "a session that was silent for five times its lease goes on"},
			{id: "late", wrong: "the session ended before its lease"},
			{id: "told", wrong: "the lock was freed, but the session goes on"},
			{id: "settings", with: true, wrong: "some settings are refused"},
		}},
		{name: canceling, session: true, holds: "a cancel request ends the statement that it is for", source: "protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS", observe: observeCancel, expects: []expectation{
			{id: "held", wrong: held},
			{id: "arrived", wrong: "cancel requests were accepted, and the statement went on"},
		}},
		{name: cancelAim, session: true, holds: "a cancel request ends no other statement", source: "protocol-flow.html#PROTOCOL-FLOW-CANCELING-REQUESTS", expects: []expectation{
			{id: "aim", wrong: "the cancel request for one session ended the statement of another"},
		}},
		{name: notify, session: true, holds: "NOTIFY reaches a session that listens", source: "sql-notify.html", observe: observeNotify, expects: []expectation{
			{id: "received", wrong: "a session that listens did not get the message"},
		}},
		{name: txLocks, holds: "a transaction's lock excludes, and is free after its commit", source: pageAdvisory, observe: observeTxLocks, expects: []expectation{
			begins,
			{id: "granted", wrong: held},
			{id: "refused", wrong: "two transactions held one lock at once"},
			{id: "freed", wrong: "the lock was not free after the commit"},
		}},
		{name: txRollback, holds: "a transaction's lock is free after its rollback", source: "sql-rollback.html", observe: observeRollback, expects: []expectation{
			begins,
			{id: "granted", wrong: held},
			{id: "refused", wrong: "two transactions held one lock at once"},
			{id: "freed", wrong: "the lock was not free after the rollback"},
		}},
		{name: txSavepoint, holds: "a rollback to a savepoint frees the locks taken since, and keeps the others", source: "sql-rollback-to.html", observe: observeSavepoint, expects: []expectation{
			begins,
			{id: "granted", wrong: held},
			{id: "refused", wrong: "two transactions held one lock at once"},
			{id: "freed", wrong: "a lock taken after the savepoint was not free after the rollback to it"},
			{id: "kept", wrong: "a lock taken before the savepoint was lost"},
			{id: "ended", wrong: "a lock taken before the savepoint was not free after the commit"},
		}},
		{name: clock, holds: "the server's clock runs steadily, and near ours", source: "functions-datetime.html#FUNCTIONS-DATETIME-CURRENT", observe: observeClock, expects: []expectation{
			{id: "steady", wrong: "the server's clock was set"},
			{id: "near", with: true, wrong: "the server's clock differs from ours"},
		}},
		{name: samePID, holds: "one server process gave each answer of a session", source: pageInfo, observe: observePID, expects: []expectation{
			{id: "stable", wrong: "another server process answered a session: a pooler shares sessions"},
			{id: "different", wrong: "two sessions have one server process"},
			{id: "visible", wrong: "pg_stat_activity does not show the process id of a session"},
		}},
	}
}
