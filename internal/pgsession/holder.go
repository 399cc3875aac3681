package pgsession

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// whereKey selects one advisory lock of this database in pg_locks.
func whereKey(tag namespace.Tag) string {
	return fmt.Sprintf(`locktype OPERATOR(pg_catalog.=) 'advisory' AND classid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d
	AND objid::pg_catalog.int8 OPERATOR(pg_catalog.=) %d AND objsubid OPERATOR(pg_catalog.=) %d
	AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())`,
		tag.ClassID, tag.ObjID, tag.ObjSubID)
}

// Holder tells who holds the lock: of several shared holders, the session that is
// oldest as far as can be seen. ok is false if nobody does.
func (s *Session) Holder(tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	if lost := s.lost.Load(); lost != nil {
		return holder, false, lost
	}
	s.setDeadline(s.from.config.statementBound())
	results, err := s.link.conn.Exec(context.Background(), fmt.Sprintf(`
	SELECT coalesce(l.pid, 0), l.mode, a.application_name, host(a.client_addr), a.state,
		pg_catalog.date_part('epoch', a.backend_start)
	FROM (SELECT * FROM pg_catalog.pg_locks WHERE %s AND granted) AS l
	LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
	ORDER BY a.backend_start LIMIT 1`, whereKey(tag))).ReadAll()
	if err != nil {
		if sqlState(err) == "" || s.link.conn.IsClosed() {
			err = s.lose(err)
		}
		return holder, false, err
	}
	if len(results[0].Rows) == 0 {
		return holder, false, nil
	}
	row := results[0].Rows[0]
	holder.PID = parsePID(string(row[0]))
	if string(row[1]) == "ShareLock" {
		holder.Mode = session.Shared
	}
	holder.ApplicationName, holder.ClientAddr, holder.State = string(row[2]), string(row[3]), string(row[4])
	if seconds, err := strconv.ParseFloat(string(row[5]), 64); err == nil {
		holder.BackendStart = time.UnixMicro(int64(seconds * 1e6))
	}
	return holder, true, nil
}
