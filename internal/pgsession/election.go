package pgsession

import (
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Incarnation returns a session of another that holds an incarnation of the
// election, its leader or one that has just ended. ok is false if none does. It
// ends a watch.
func (s *Session) Incarnation(election namespace.Election) (holder session.Holder, ok bool, err error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT l.pid, a.application_name, l.found IS NOT NULL, pg_catalog.pg_backend_pid()
	FROM (SELECT 1) AS one LEFT JOIN (SELECT pid, true AS found FROM pg_catalog.pg_locks
		WHERE %s AND objid::pg_catalog.int8 OPERATOR(pg_catalog.<>) 0 AND granted
			AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid() LIMIT 1) AS l ON true
	LEFT JOIN LATERAL pg_catalog.pg_stat_get_activity(l.pid) AS a ON l.pid IS NOT NULL`, whereClass(election.Barrier())))
	if err != nil || row[2] != "t" {
		return holder, false, err
	}
	holder.PID, holder.ApplicationName = parsePID(row[0]), row[1]
	return holder, true, nil
}

// Terminate ends a session of this role, if it is still the one that is meant. It
// ends a watch.
func (s *Session) Terminate(pid uint32, backendStart time.Time, applicationName string) (ok bool, err error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT coalesce((SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
		WHERE pid OPERATOR(pg_catalog.=) %d AND application_name OPERATOR(pg_catalog.=) %s
		AND (pg_catalog.date_part('epoch', backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 OPERATOR(pg_catalog.=) %d), false),
		pg_catalog.pg_backend_pid()`, pid, Literal(applicationName), backendStart.UnixMicro()))
	return err == nil && row[0] == "t", err
}

// BackendStart is when the server began the session. It ends a watch.
func (s *Session) BackendStart() (time.Time, error) {
	row, err := s.Query(`SELECT pg_catalog.date_part('epoch', backend_start), pg_catalog.pg_backend_pid()
	FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())`)
	if err != nil {
		return time.Time{}, err
	}
	return parseEpoch(row[0]), nil
}
