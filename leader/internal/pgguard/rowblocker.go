package pgguard

import (
	"encoding/json"
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// RowBlocker returns a transaction that keeps others from changing a row of a table: one that has locked the
// table or the row. table and where are SQL. ok is false if it sees none, for example if several transactions
// share the row. RowBlocker ends the session's watch.
func RowBlocker(s *pgsession.Session, table, where string) (by Guarded, ok bool, err error) {
	for _, holds := range []string{
		fmt.Sprintf(holdsTableSQL, pgsession.Literal(table)), // first, because a locked table cannot be read
		fmt.Sprintf(holdsRowSQL, table, where),
	} {
		row, err := s.Query(fmt.Sprintf(guardsSQL, holds+` AND granted AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()`))
		if err != nil {
			return by, false, err
		}
		var found []Guarded
		if err := json.Unmarshal([]byte(row[0]), &found); err != nil {
			return by, false, fmt.Errorf("reading who blocks a row: %w", err)
		}
		if len(found) > 0 {
			return found[0], true, nil
		}
	}
	return by, false, nil
}

// The locks of a transaction that has locked the table against changes, and of one that has locked a row
// (PostgreSQL manual, section 13.3).
const (
	holdsTableSQL = `locktype OPERATOR(pg_catalog.=) 'relation' AND relation OPERATOR(pg_catalog.=) pg_catalog.to_regclass(%s)::pg_catalog.oid
		AND mode OPERATOR(pg_catalog.=) ANY (ARRAY['ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'])`
	holdsRowSQL = `locktype OPERATOR(pg_catalog.=) 'transactionid' AND transactionid OPERATOR(pg_catalog.=) (SELECT xmax FROM %s WHERE %s)`
)
