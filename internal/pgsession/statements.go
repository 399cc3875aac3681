package pgsession

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Every statement's answer ends with the backend pid. Parameters and results are
// binary; the halves of a Tag are the bytes of the parameters.
const (
	pingSQL = "SELECT true, pg_catalog.pg_backend_pid()"
	// clearSQL gives back everything, without a warning in the server's log for
	// what is not held.
	clearSQL = "SELECT true, pg_catalog.pg_backend_pid(), pg_catalog.pg_advisory_unlock_all()"
)

// A shape is the kind of statement that a key and a mode need.
type shape struct {
	pair   bool
	shared bool
}

func shapeOf(tag namespace.Tag, mode session.Mode) shape {
	return shape{pair: tag.ObjSubID == namespace.PairForm, shared: mode == session.Shared}
}

func (s shape) call(function string) string {
	suffix, args := "", "($1::pg_catalog.int8)"
	if s.shared {
		suffix = "_shared"
	}
	if s.pair {
		args = "($1::pg_catalog.int4, $2::pg_catalog.int4)"
	}
	return "SELECT pg_catalog." + function + suffix + args + ", pg_catalog.pg_backend_pid()"
}

// batch unlocks the first $n keys of the arrays and tries the others. The
// subquery, which volatile functions keep from being merged with what is around it,
// calls one function once for each row of the scan; the count proves that for how
// many, and the ordinals tell which keys the answer false is for.
func (s shape) batch() string {
	suffix, keys, names, n := "", "pg_catalog.unnest($1::pg_catalog.int8[])", "a", "$2"
	if s.shared {
		suffix = "_shared"
	}
	if s.pair {
		keys, names, n = "pg_catalog.unnest($1::pg_catalog.int4[]), pg_catalog.unnest($2::pg_catalog.int4[])", "a, b", "$3"
	}
	return fmt.Sprintf(`SELECT pg_catalog.count(*), pg_catalog.array_agg(o) FILTER (WHERE NOT ok), pg_catalog.pg_backend_pid()
	FROM (SELECT o, CASE WHEN o OPERATOR(pg_catalog.<=) %[4]s::pg_catalog.int8
		THEN pg_catalog.pg_advisory_unlock%[1]s(%[3]s) ELSE pg_catalog.pg_try_advisory_lock%[1]s(%[3]s) END AS ok
	FROM ROWS FROM (%[2]s) WITH ORDINALITY AS k(%[3]s, o)) AS called`, suffix, keys, names, n)
}

// anySQL takes the first free one of single keys: LIMIT pulls one row at a time
// through the filter of a function scan.
const anySQL = `SELECT coalesce((
	SELECT k.o FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[])) WITH ORDINALITY AS k(a, o)
	WHERE pg_catalog.pg_try_advisory_lock(k.a) LIMIT 1), 0), pg_catalog.pg_backend_pid()`

// ownSQL is for advisory locks of this session among some with these objids. It
// asks the function behind pg_locks, because no relation can be opened while the
// lock table is full.
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

var shapes = [...]shape{{}, {pair: true}, {shared: true}, {pair: true, shared: true}}

// statements are the prepared statements of a connection.
type statements struct {
	try, unlock [len(shapes)]*pgconn.StatementDescription
	batch       [len(shapes)]*pgconn.StatementDescription
	ping, clear *pgconn.StatementDescription
	any, own    *pgconn.StatementDescription
}

// prepareStatements prepares all of them in one round trip.
func prepareStatements(ctx context.Context, conn *pgconn.PgConn, batches bool) (statements, error) {
	var s statements
	pipeline := conn.StartPipeline(ctx)
	var targets []**pgconn.StatementDescription
	name := func(i int) string { return fmt.Sprintf("pglatch_%d", i) }
	send := func(target **pgconn.StatementDescription, sql string) {
		pipeline.SendPrepare(name(len(targets)), sql, nil)
		targets = append(targets, target)
	}
	for _, shape := range shapes {
		send(&s.try[shape.index()], shape.call("pg_try_advisory_lock"))
		send(&s.unlock[shape.index()], shape.call("pg_advisory_unlock"))
		if batches {
			send(&s.batch[shape.index()], shape.batch())
		}
	}
	if batches {
		send(&s.any, anySQL)
		send(&s.own, ownSQL)
	}
	send(&s.ping, pingSQL)
	send(&s.clear, clearSQL)
	if err := pipeline.Sync(); err != nil {
		return s, errFirst(pipeline.Close(), err)
	}
	for i, target := range targets {
		result, err := pipeline.GetResults()
		if err != nil {
			return s, errFirst(err, pipeline.Close())
		}
		description, ok := result.(*pgconn.StatementDescription)
		if !ok {
			return s, errFirst(pipeline.Close(), fmt.Errorf("BUG: %T from a prepare", result))
		}
		description.Name = name(i) // a pipeline does not fill it in
		*target = description
	}
	return s, pipeline.Close()
}

func errFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// waitSQL waits at most limit for a lock, and answers whether it is held and by
// which backend. Errors that end a wait are caught on the server: one that
// reached the client would also be written to the server's log. The lock may have
// been granted in the instant of the error, so the handler asks with a try, which
// is true if and only if the lock is held now. Then it may be held twice. The
// handler is in a block that has one, too, because the postmaster signals a backend
// and its process group: one cancel request can arrive as two, and PL/pgSQL looks for
// the second before each statement, the handler's first included.
func waitSQL(tag namespace.Tag, mode session.Mode, limit string) string {
	suffix, args := literals(tag, mode)
	return fmt.Sprintf(`DO $pglatch$
DECLARE
	held pg_catalog.bool;
BEGIN
	BEGIN
		PERFORM pg_catalog.set_config('lock_timeout', '%[3]s', true);
		PERFORM pg_catalog.pg_advisory_lock%[1]s(%[2]s);
		PERFORM pg_catalog.set_config('pglatch.outcome', 'granted', false);
	EXCEPTION WHEN lock_not_available OR deadlock_detected OR query_canceled THEN
		held := pg_catalog.pg_try_advisory_lock%[1]s(%[2]s);
		PERFORM pg_catalog.set_config('pglatch.outcome', CASE WHEN held THEN 'resolved' ELSE 'refused' END, false);
	END;
EXCEPTION WHEN query_canceled THEN
	held := pg_catalog.pg_try_advisory_lock%[1]s(%[2]s);
	PERFORM pg_catalog.set_config('pglatch.outcome', CASE WHEN held THEN 'resolved' ELSE 'refused' END, false);
END $pglatch$;
SELECT pg_catalog.current_setting('pglatch.outcome'), pg_catalog.pg_backend_pid()`, suffix, args, limit)
}

// literals returns the suffix of the lock functions for a mode and a tag's
// arguments as SQL, for statements that take no parameters.
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
