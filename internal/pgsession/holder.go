package pgsession

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// Holder returns the holder of the lock: of several shared holders, the oldest session, as far as
// visible. ok is false if there is none. Holder ends a watch.
func (s *Session) Holder(tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	op := &session.Op{Tag: tag, Holder: &holder}
	for range attempts {
		if err = s.Run(op); err != nil {
			return holder, false, err
		}
		if sqlstate.Of(op.Err) != sqlstate.QueryCanceled {
			break // otherwise a late cancel request for an earlier wait hit it
		}
	}
	return holder, op.Held, op.Err
}

// sessionHolderSQL is holderSQL as text in one row, whose last column is the pid.
func sessionHolderSQL(tag namespace.Tag) string {
	return `SELECT h.pid::pg_catalog.text, h.mode, h.application_name::pg_catalog.text, h.addr, h.state, h.start::pg_catalog.text, h.prepared, h.transaction::pg_catalog.text,
	pg_catalog.pg_backend_pid() FROM (SELECT 1) AS one LEFT JOIN (` + holderSQL(tag) + `) AS h ON true`
}

// holderOfRow reads a row of sessionHolderSQL; ok is false if the lock has no holder.
func holderOfRow(row [][]byte) (h session.Holder, ok bool) {
	if row[0] == nil {
		return h, false
	}
	var columns holderColumns
	for i := range columns {
		columns[i] = string(row[i])
	}
	return holderFrom(columns), true
}

// HolderOf is Holder on any connection.
func HolderOf(ctx context.Context, conn *pgconn.PgConn, tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	results, err := conn.Exec(ctx, holderSQL(tag)).ReadAll()
	if err != nil || len(results[0].Rows) == 0 {
		return holder, false, err
	}
	var values holderColumns
	for i, value := range results[0].Rows[0] {
		values[i] = string(value)
	}
	return holderFrom(values), true, nil
}

func holderSQL(tag namespace.Tag) string { return holderWhere(WhereKey(tag)) }

// holderWhere is holderSQL for a condition on pg_locks. A prepared transaction has no pid there. It
// also holds the lock of its own transaction id, which leads to its name.
func holderWhere(condition string) string {
	return fmt.Sprintf(`
	SELECT coalesce(l.pid, 0) AS pid, l.mode, a.application_name, pg_catalog.host(a.client_addr) AS addr, a.state,
		%s AS start, x.gid AS prepared, %s AS transaction
	FROM (SELECT * FROM pg_catalog.pg_locks WHERE %s AND granted) AS l
	LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
	LEFT JOIN pg_catalog.pg_locks AS t ON l.pid IS NULL AND t.pid IS NULL AND t.granted
		AND t.locktype OPERATOR(pg_catalog.=) 'transactionid' AND t.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
	LEFT JOIN pg_catalog.pg_prepared_xacts AS x ON x.transaction OPERATOR(pg_catalog.=) t.transactionid
	ORDER BY a.backend_start LIMIT 1`, microsSQL("coalesce(a.backend_start, x.prepared)"), microsSQL("a.xact_start"), condition)
}

// WhereKey selects one advisory lock of this database in pg_locks.
func WhereKey(tag namespace.Tag) string {
	return WhereClass(tag) + whereObject(tag)
}

// WhereClass selects the advisory locks of this database in pg_locks that have the tag's form and
// classid.
func WhereClass(tag namespace.Tag) string {
	return whereForm(tag) + `
	AND ` + WhereDatabase
}

// WhereDatabase selects the locks of this database in pg_locks.
const WhereDatabase = `database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())`

// holderColumns are the columns of holderSQL, "" for NULL.
type holderColumns [8]string

func holderFrom(columns holderColumns) session.Holder {
	h := session.Holder{
		PID: parsePID(columns[0]), ApplicationName: columns[2], ClientAddr: columns[3], State: columns[4],
		Prepared: columns[6],
	}
	start := parseMicros(columns[5])
	if start != 0 { // otherwise it is hidden
		h.BackendStart = time.UnixMicro(start)
	}
	switch {
	case ourLockers.has(began{h.PID, start}):
		h.Whose = session.OurLocker
	case ourTransactions.has(began{h.PID, parseMicros(columns[7])}):
		h.Whose = session.OurTransaction
	}
	if columns[1] == "ShareLock" {
		h.Mode = session.Shared
	}
	return h
}

func parseMicros(text string) int64 {
	us, _ := strconv.ParseInt(text, 10, 64) // 0 if it is hidden
	return us
}
