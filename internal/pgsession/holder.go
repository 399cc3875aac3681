package pgsession

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// Holder tells who holds the lock: of several shared holders, the session that is
// oldest as far as can be seen. ok is false if nobody does. It ends a watch.
func (s *Session) Holder(tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	op := &session.Op{Tag: tag, Holder: &holder}
	for range attempts {
		if err = s.Run(op); err != nil {
			return holder, false, err
		}
		if sqlstate.Of(op.Err) != sqlstate.QueryCanceled {
			break // else a late cancel request, meant for a wait before, hit it
		}
	}
	return holder, op.Held, op.Err
}

// sessionHolderSQL is holderSQL as text in one row, whose last column is the pid.
func sessionHolderSQL(tag namespace.Tag) string {
	return `SELECT h.pid::pg_catalog.text, h.mode, h.application_name::pg_catalog.text, h.addr, h.state, h.start::pg_catalog.text,
	pg_catalog.pg_backend_pid() FROM (SELECT 1) AS one LEFT JOIN (` + holderSQL(tag) + `) AS h ON true`
}

// holderOfRow reads a row of sessionHolderSQL; ok is false if nobody holds the lock.
func holderOfRow(row [][]byte) (h session.Holder, ok bool) {
	if row[0] == nil {
		return h, false
	}
	var columns [6]string
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
	var values [6]string
	for i, value := range results[0].Rows[0] {
		values[i] = string(value)
	}
	return holderFrom(values), true, nil
}

func holderSQL(tag namespace.Tag) string {
	return fmt.Sprintf(`
	SELECT coalesce(l.pid, 0) AS pid, l.mode, a.application_name, pg_catalog.host(a.client_addr) AS addr, a.state,
		pg_catalog.date_part('epoch', a.backend_start) AS start
	FROM (SELECT * FROM pg_catalog.pg_locks WHERE %s AND granted) AS l
	LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
	ORDER BY a.backend_start LIMIT 1`, whereKey(tag))
}

// whereKey selects one advisory lock of this database in pg_locks.
func whereKey(tag namespace.Tag) string {
	return whereClass(tag) + whereObject(tag)
}

// whereClass selects the advisory locks of this database in pg_locks that have the
// tag's form and classid.
func whereClass(tag namespace.Tag) string {
	return whereForm(tag) + `
	AND ` + whereDatabase
}

// whereDatabase selects the locks of this database in pg_locks.
const whereDatabase = `database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())`

// whereForm is whereClass in all databases.
func whereForm(tag namespace.Tag) string {
	return fmt.Sprintf(`locktype OPERATOR(pg_catalog.=) 'advisory' AND classid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d
	AND objsubid OPERATOR(pg_catalog.=) %d`, tag.ClassID, tag.ObjSubID)
}

func whereObject(tag namespace.Tag) string {
	return fmt.Sprintf(` AND objid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d`, tag.ObjID)
}

// holderFrom reads the columns of holderSQL, "" for NULL.
func holderFrom(columns [6]string) session.Holder {
	h := session.Holder{
		PID: parsePID(columns[0]), ApplicationName: columns[2], ClientAddr: columns[3], State: columns[4],
		BackendStart: parseEpoch(columns[5]),
	}
	if columns[1] == "ShareLock" {
		h.Mode = session.Shared
	}
	return h
}

// parseEpoch reads seconds since 1970, which a float8 has to the microsecond.
func parseEpoch(text string) time.Time {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{} // hidden
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6)))
}
