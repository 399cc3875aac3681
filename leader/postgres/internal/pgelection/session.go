package pgelection

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// Terminate ends a session of this role, if it is still the given one. It ends the session's watch.
func Terminate(s *pgsession.Session, pid uint32, backendStart time.Time, applicationName string) (ok bool, err error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT coalesce((SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
		WHERE pid OPERATOR(pg_catalog.=) %d AND application_name OPERATOR(pg_catalog.=) %s
		AND (pg_catalog.date_part('epoch', backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 OPERATOR(pg_catalog.=) %d), false),
		pg_catalog.pg_backend_pid()`, pid, pgsession.Literal(applicationName), backendStart.UnixMicro()))
	return err == nil && row[0] == "t", err
}

// BackendStart returns when the server began the session. It ends the session's watch.
func BackendStart(s *pgsession.Session) (time.Time, error) {
	row, err := s.Query(`SELECT pg_catalog.date_part('epoch', backend_start), pg_catalog.pg_backend_pid()
	FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())`)
	if err != nil {
		return time.Time{}, err
	}
	return parseEpoch(row[0]), nil
}

// parseEpoch parses seconds since 1970; a float8 has microsecond precision for them.
func parseEpoch(text string) time.Time {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{} // hidden
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6)))
}
