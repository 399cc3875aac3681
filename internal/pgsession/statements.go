package pgsession

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Every statement's answer ends with the backend pid. Parameters and results are
// binary; the halves of a Tag are the bytes of the parameters.
const pingSQL = "SELECT pg_catalog.pg_backend_pid()"

// A shape is the kind of statement that a key and a mode need.
type shape struct {
	pair   bool
	shared bool
}

func shapeOf(tag namespace.Tag, mode session.Mode) shape {
	return shape{pair: tag.ObjSubID == namespace.PairForm, shared: mode == session.Shared}
}

var shapes = [...]shape{{}, {pair: true}, {shared: true}, {pair: true, shared: true}}

// statements are the prepared statements of a connection.
type statements struct {
	try, unlock [len(shapes)]*pgconn.StatementDescription
	batch       [len(shapes)]*pgconn.StatementDescription
	any, own    *pgconn.StatementDescription
	pass, ping  *pgconn.StatementDescription
	begin       *pgconn.StatementDescription
	commit      *pgconn.StatementDescription // becomes ROLLBACK in a failed transaction
}

// prepareStatements prepares all of them in one round trip. A failed attempt leaves some behind, so each
// attempt uses other names.
func prepareStatements(ctx context.Context, conn *pgconn.PgConn, attempt int) (statements, error) {
	var s statements
	pipeline := conn.StartPipeline(ctx)
	var targets []**pgconn.StatementDescription
	name := func(i int) string { return fmt.Sprintf("pglatch_%d_%d", attempt, i) }
	send := func(target **pgconn.StatementDescription, sql string) {
		pipeline.SendPrepare(name(len(targets)), sql, nil)
		targets = append(targets, target)
	}
	for _, shape := range shapes {
		send(&s.try[shape.index()], shape.try())
		send(&s.unlock[shape.index()], shape.unlock())
		send(&s.batch[shape.index()], shape.batch())
	}
	send(&s.any, anySQL)
	send(&s.own, ownSQL)
	send(&s.pass, passSQL)
	send(&s.ping, pingSQL)
	send(&s.begin, "BEGIN")
	send(&s.commit, "COMMIT")
	if err := pipeline.Sync(); err != nil {
		return s, cmp.Or(pipeline.Close(), err)
	}
	for i, target := range targets {
		result, err := pipeline.GetResults()
		if err != nil {
			return s, cmp.Or(err, pipeline.Close())
		}
		description, ok := result.(*pgconn.StatementDescription)
		if !ok {
			return s, cmp.Or(pipeline.Close(), fmt.Errorf("BUG: %T from a prepare", result))
		}
		description.Name = name(i) // a pipeline does not set it
		*target = description
	}
	return s, pipeline.Close()
}

// anySQL takes the first free one of single keys: LIMIT pulls one row at a time through the filter of a
// function scan.
var anySQL = `SELECT CASE WHEN ` + passes("$2") + ` THEN coalesce((
	SELECT k.o FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[])) WITH ORDINALITY AS k(a, o)
	WHERE pg_catalog.pg_try_advisory_lock(k.a) LIMIT 1), 0) ELSE 0 END, pg_catalog.pg_backend_pid()`

// passSQL checks whether a turnstile is open.
var passSQL = "SELECT " + passes("$1") + ", pg_catalog.pg_backend_pid()"

// ownSQL lists advisory locks of this session among some with these objids. It calls the function behind
// pg_locks, because no relation can be opened while the lock table is full.
const ownSQL = `SELECT l.classid, l.objid, l.objsubid, l.mode OPERATOR(pg_catalog.=) 'ShareLock', me.pid
	FROM (SELECT pg_catalog.pg_backend_pid() AS pid) AS me LEFT JOIN pg_catalog.pg_lock_status() AS l
	ON l.pid OPERATOR(pg_catalog.=) me.pid AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
		AND l.objid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[])`

// index orders the four shapes.
func (s shape) index() int {
	i := 0
	if s.pair {
		i++
	}
	if s.shared {
		i += 2
	}
	return i
}

// unlock returns the statement that releases one key.
func (s shape) unlock() string {
	call, _ := s.one("pg_advisory_unlock")
	return "SELECT " + call + ", pg_catalog.pg_backend_pid()"
}

// batch returns the statement that unlocks the keys of the first array and tries those of the second; each key
// is an int8. The subquery calls one function once for each key; volatile functions keep it from being merged
// with the outer query. The count proves for how many keys it was called. The array lists the keys for which
// the answer was false.
func (s shape) batch() string {
	key, tries := "k", "pg_catalog.unnest($2::pg_catalog.int8[]) AS k"
	if s.pair {
		key = "(k OPERATOR(pg_catalog.>>) 32)::pg_catalog.int4, ((k OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.>>) 32)::pg_catalog.int4"
	}
	try := "pg_catalog.pg_try_advisory_lock" + s.suffix() + "(" + key + ")"
	if s.shared {
		tries += ", pg_catalog.unnest($3::pg_catalog.int8[]) AS t" // the turnstiles
		try = "CASE WHEN " + passes("t") + " THEN " + try + " ELSE false END"
	}
	return fmt.Sprintf(`SELECT pg_catalog.count(*), pg_catalog.array_agg(k) FILTER (WHERE NOT ok), pg_catalog.pg_backend_pid() FROM (
	SELECT k, pg_catalog.pg_advisory_unlock%s(%s) AS ok FROM (SELECT pg_catalog.unnest($1::pg_catalog.int8[]) AS k) AS unlocks
	UNION ALL SELECT k, %s FROM (SELECT %s) AS tries) AS called`, s.suffix(), key, try, tries)
}

// try returns the statement that tries one key; in shared mode the turnstile is the last parameter.
func (s shape) try() string {
	call, last := s.one("pg_try_advisory_lock")
	if s.shared {
		call = "CASE WHEN " + passes(last) + " THEN " + call + " ELSE false END"
	}
	return "SELECT " + call + ", pg_catalog.pg_backend_pid()"
}

// one returns a call of a function for one key, and the name of the next parameter.
func (s shape) one(function string) (call, next string) {
	args, next := "($1::pg_catalog.int8)", "$2"
	if s.pair {
		args, next = "($1::pg_catalog.int4, $2::pg_catalog.int4)", "$3"
	}
	return "pg_catalog." + function + s.suffix() + args, next
}

// passes tests that no other session holds a turnstile in exclusive mode, or waits for it in that mode. It
// takes the turnstile until the end of the transaction, which is the end of the statement. 0 = no turnstile.
func passes(turnstile string) string {
	return "(" + turnstile + "::pg_catalog.int8 OPERATOR(pg_catalog.=) 0 OR pg_catalog.pg_try_advisory_xact_lock_shared(" + turnstile + "::pg_catalog.int8))"
}

// waitSQL waits at most limit for a lock, and returns whether it is held and by which backend. Errors that end
// a wait are caught on the server: one that reached the client would also appear in the server's log. The lock
// may have been granted at the instant of the error. The handler therefore checks with a try, which is true if
// and only if the lock is held now. The lock may then be held twice. The handler is in a block that has a
// handler, too, for the second signal of a cancel request: see secondSignal. PL/pgSQL checks for it before
// each statement, including the handler's first.
//
// The parameters are in a separate SELECT, whose constants pg_stat_statements leaves out. pg_stat_statements
// keeps an entry for each text of a DO block, and a DO block takes no parameters.
func waitSQL(tag namespace.Tag, mode session.Mode, limit string) string {
	return fmt.Sprintf("SELECT pg_catalog.set_config('pglatch.request', 'wait %s %d %d %s', true);\n%s",
		modeName(mode), tag.ObjSubID, int64(int8Of(tag)), limit, waitBlock)
}

// waitBlock reads the parameters of requestSQL: a word, mode, form, key, limit. It has no expression in a
// DECLARE, which no handler of its block covers: a cancel request could arrive there.
var waitBlock = fmt.Sprintf(`DO $pglatch$
DECLARE
	r pg_catalog.text[];
	shared pg_catalog.bool;
	pair pg_catalog.bool;
	k pg_catalog.int8;
	held pg_catalog.bool;
BEGIN
	BEGIN
		r := %[1]s;
		shared := %[5]s;
		pair := r[3] OPERATOR(pg_catalog.=) '2';
		k := r[4];
		IF k IS NULL THEN RAISE null_value_not_allowed; END IF;
		PERFORM pg_catalog.set_config('lock_timeout', r[5], true);
		PERFORM %[2]s;
		PERFORM pg_catalog.set_config('pglatch.outcome', 'granted', false);
	EXCEPTION WHEN lock_not_available OR deadlock_detected OR query_canceled THEN
		IF SQLSTATE OPERATOR(pg_catalog.=) '57014' THEN PERFORM pg_catalog.pg_sleep(%[4]s); END IF;
		held := %[3]s;
		PERFORM pg_catalog.set_config('pglatch.outcome', CASE WHEN held THEN 'resolved' ELSE 'refused' END, false);
	END;
EXCEPTION WHEN query_canceled THEN
	held := %[3]s;
	PERFORM pg_catalog.set_config('pglatch.outcome', CASE WHEN held THEN 'resolved' ELSE 'refused' END, false);
END $pglatch$;
SELECT pg_catalog.current_setting('pglatch.outcome'), pg_catalog.pg_backend_pid()`,
	partsSQL, shaped("pg_advisory_lock", "k", "pair"), shaped("pg_try_advisory_lock", "k", "pair"), secondSignal, sharedSQL)

// secondSignal is how long a canceled wait sleeps, in seconds. Up to PostgreSQL 17 a cancel request is two
// signals, and the first one wakes the waiting server process. On a busy machine that process takes the
// processor from the sender. The sleep returns the processor to the sender, and the second signal ends the
// sleep.
const secondSignal = "0.002"

// literals returns the suffix of the lock functions for a mode and a tag's arguments as SQL, for statements
// without parameters.
func literals(tag namespace.Tag, mode session.Mode) (suffix, args string) {
	if mode == session.Shared {
		suffix = "_shared"
	}
	if k1, k2, ok := tag.Pair(); ok {
		return suffix, fmt.Sprintf("'%d'::pg_catalog.int4, '%d'::pg_catalog.int4", k1, k2)
	}
	k, _ := tag.Single()
	return suffix, fmt.Sprintf("'%d'::pg_catalog.int8", k)
}

func (s shape) suffix() string {
	if s.shared {
		return "_shared"
	}
	return ""
}

// whereForm is WhereClass in all databases.
func whereForm(tag namespace.Tag) string {
	return fmt.Sprintf(`locktype OPERATOR(pg_catalog.=) 'advisory' AND classid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d
	AND objsubid OPERATOR(pg_catalog.=) %d`, tag.ClassID, tag.ObjSubID)
}

func whereObject(tag namespace.Tag) string {
	return fmt.Sprintf(` AND objid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d`, tag.ObjID)
}
