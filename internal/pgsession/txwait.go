package pgsession

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

const (
	// maxTxWait is how long one wait in a caller's transaction holds a snapshot. It is longer than deadlock_timeout, so
	// that PostgreSQL checks for deadlocks, and so that the wait keeps its place in PostgreSQL's queue.
	maxTxWait = time.Minute
	// restoreBound is the limit for restoring settings in a transaction whose context has ended.
	restoreBound = 5 * time.Second
)

// A TxWaited is the end of a wait in a caller's transaction. The zero TxWaited means that the time is over.
type TxWaited struct {
	Granted     bool
	LockTimeout string // the transaction's own lock_timeout, if that ended the wait
	Deadlock    string // PostgreSQL's description of a deadlock that it detected
}

// TxWait waits for a transaction-scoped lock, until the limit or for as long as one statement may wait. A lock_timeout
// that the session or transaction has set is a limit too; waited is the part of it that is used up.
//
// TxWait takes the turnstile first. A reader only passes it, because readers that kept it would block writers. A writer
// keeps it as long as the lock, so that no reader gets in before it. A reader whose transaction already has the key
// does not queue behind the writer that waits for it.
//
// An exception handler is a savepoint: a wait that times out leaves the transaction unchanged and writes nothing to the
// server's log. The same holds for a wait that PostgreSQL ends because of a deadlock. lock_timeout and
// statement_timeout are restored in any case.
func TxWait(ctx context.Context, tx Tx, tag namespace.Tag, mode session.Mode, limit, waited time.Duration) (end TxWaited, err error) {
	answer, err := txRun(ctx, tx, txWaitSQL, txWaitRequestSQL, modeName(mode), strconv.Itoa(int(tag.ObjSubID)),
		strconv.FormatInt(int64(int8Of(tag)), 10), strconv.FormatInt(int64(int8Of(turnstile.Of(tag))), 10), Milliseconds(max(min(limit, maxTxWait), time.Millisecond)), Milliseconds(waited))
	if err != nil && sqlstate.Of(err) == "" {
		restore(ctx, tx)
	}
	switch word, text, _ := strings.Cut(answer, " "); word {
	case granted:
		end.Granted = true
	case ownTimeout:
		end.LockTimeout = text
	case deadlocked:
		end.Deadlock = text
	}
	return end, err
}

// The first word of a wait's answer.
const (
	granted    = "granted"
	ownTimeout = "lock_timeout"
	deadlocked = "deadlock"
)

// restore restores the settings after a wait that may not have begun, because its context or a driver's own deadline
// ended first. A driver that closed the connection refuses. So does an aborted transaction, which restores them itself.
func restore(ctx context.Context, tx Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreBound)
	defer cancel()
	_ = tx.Exec(ctx, txRestoreSQL)
}

// txWaitRequestSQL stores the parameters of txWaitSQL: mark, mode, form, key, turnstile, limit, the used-up part of
// lock_timeout. It also stores the settings that it changes for the next statement. statement_timeout, which may be
// shorter than the wait, cannot be changed for the running statement. Where possible, the server checks each second
// whether the client has gone.
const txWaitRequestSQL = `SELECT pg_catalog.set_config('pglatch.request', pg_catalog.concat_ws(' ', $1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.text, $6::pg_catalog.text, $7::pg_catalog.text,
	pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('client_connection_check_interval')), true),
	pg_catalog.set_config('statement_timeout', '0', true),
	CASE WHEN pg_catalog.current_setting('client_connection_check_interval') OPERATOR(pg_catalog.=) '0' AND pg_catalog.strpos(pg_catalog.version(), 'linux') OPERATOR(pg_catalog.>) 0
		THEN pg_catalog.set_config('client_connection_check_interval', '1s', true) END`

// txRestoreSQL restores the settings that txWaitRequestSQL changed.
const txRestoreSQL = `SELECT pg_catalog.set_config('statement_timeout', r[9], true), pg_catalog.set_config('client_connection_check_interval', r[10], true)
	FROM (SELECT pg_catalog.string_to_array(pg_catalog.current_setting('pglatch.request', true), ' ') AS r OFFSET 0) AS request
	WHERE pg_catalog.cardinality(r) OPERATOR(pg_catalog.=) 10`

// untilEndsSQL bounds a lock's wait by the remaining time, in a block of txWaitSQL.
const untilEndsSQL = `PERFORM pg_catalog.set_config('lock_timeout', greatest('1'::pg_catalog.int8,
			(pg_catalog.date_part('epoch', ends OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8)::pg_catalog.text, true);`

// txWaitSQL makes the waiting transaction lock a relation. A wait of a Locker never does that, so TxCycle can
// distinguish them. A lock_timeout that is a default, of the role for example, is not a limit. It is restored as a
// default, by NULL, so that the next wait recognizes it as one.
var txWaitSQL = `DO $pglatch$
DECLARE
	` + requestSQL + `
	turnstile pg_catalog.int8 := r[5];
	source pg_catalog.text := CASE WHEN r[8] OPERATOR(pg_catalog.<>) '0' THEN (SELECT s.source FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.=) 'lock_timeout') ELSE 'session' END;
	ours pg_catalog.bool := source OPERATOR(pg_catalog.=) ANY ('{session,client}'::pg_catalog.text[]);
	own pg_catalog.interval := CASE WHEN ours AND r[8] OPERATOR(pg_catalog.<>) '0' THEN r[8]::pg_catalog.interval OPERATOR(pg_catalog.-) r[7]::pg_catalog.interval END;
	ends pg_catalog.timestamptz := pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) least(r[6]::pg_catalog.interval, own);
	answer pg_catalog.text;
BEGIN
	IF r[1] IS NULL THEN RETURN; END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_locks WHERE false) THEN NULL; END IF;
	BEGIN
		` + untilEndsSQL + `
		IF shared THEN
			IF NOT ` + alreadySQL("r[4]::pg_catalog.int8", "r[3]::pg_catalog.int2") + ` THEN
				BEGIN
					PERFORM pg_catalog.pg_advisory_xact_lock_shared(turnstile);
					` + undo + `
				EXCEPTION WHEN SQLSTATE 'PGL01' THEN NULL;
				END;
			END IF;
		ELSE
			PERFORM pg_catalog.pg_advisory_xact_lock(turnstile);
		END IF;
		` + untilEndsSQL + `
		PERFORM ` + shaped("pg_advisory_xact_lock", "(r[4]::pg_catalog.int8)", "r[3] OPERATOR(pg_catalog.=) '2'") + `;
		answer := '` + granted + `';
	EXCEPTION
		WHEN lock_not_available THEN
			answer := CASE WHEN own OPERATOR(pg_catalog.<=) r[6]::pg_catalog.interval THEN pg_catalog.concat('` + ownTimeout + ` ', r[8]) END;
		WHEN deadlock_detected THEN
			GET STACKED DIAGNOSTICS answer = PG_EXCEPTION_DETAIL;
			answer := pg_catalog.concat('` + deadlocked + ` ', answer);
	END;
	PERFORM pg_catalog.set_config('lock_timeout', CASE WHEN ours THEN r[8] END, true), pg_catalog.set_config('statement_timeout', r[9], true),
		pg_catalog.set_config('client_connection_check_interval', r[10], true), pg_catalog.set_config('pglatch.outcome', pg_catalog.concat(r[1], answer), true);
END $pglatch$`
