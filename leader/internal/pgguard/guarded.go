package pgguard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// A Guarded is a transaction that shares a lock of guards, or has locked a row. Fields that the role may not
// see are zero.
type Guarded struct {
	PID             uint32 `json:"pid"`         // 0 = prepared
	Transaction     string `json:"transaction"` // pg_locks.virtualtransaction, unique together with PID
	ApplicationName string `json:"application_name"`
	Role            string `json:"role"`
	State           string `json:"state"` // pg_stat_activity.state: "idle in transaction", "active"
	Prepared        string `json:"prepared"`
	SinceMicro      int64  `json:"since"` // start, or time of PREPARE; microseconds since 1970
	StartMicro      int64  `json:"start"` // start of the session
	MayEnd          bool   `json:"may_end"`
	Superuser       bool   `json:"superuser"`
}

// Needs returns the right that the role lacks for ending the session; "" = none, or the transaction is
// prepared.
func (g Guarded) Needs() string {
	switch {
	case g.MayEnd || g.PID == 0:
		return ""
	case g.Superuser:
		return "SUPERUSER, as that role has it"
	}
	return "the privileges of that role or of pg_signal_backend (GRANT pg_signal_backend TO the candidate's role)"
}

// Since returns the start of the transaction, or the time of PREPARE; zero = hidden.
func (g Guarded) Since() (t time.Time) {
	if g.SinceMicro != 0 {
		t = time.UnixMicro(g.SinceMicro)
	}
	return t
}

// Foremost returns the transaction to report, which is the first that the role may not end, or else the first.
func Foremost(guards []Guarded) Guarded {
	if i := slices.IndexFunc(guards, func(g Guarded) bool { return !g.MayEnd }); i >= 0 {
		return guards[i]
	}
	return guards[0]
}

// Guards returns the transactions that share the lock, the oldest first. A superuser may end any session. A
// role with the privileges of the session's role or of pg_signal_backend may end it, unless it is a superuser's
// (PostgreSQL manual, section 9.28.2). Guards ends the session's watch.
func Guards(s *pgsession.Session, lock namespace.Tag) ([]Guarded, error) {
	row, err := s.Query(fmt.Sprintf(guardsSQL, whereShared(lock)))
	if err != nil {
		return nil, err
	}
	var guards []Guarded
	if err := json.Unmarshal([]byte(row[0]), &guards); err != nil {
		return nil, fmt.Errorf("reading the guarded transactions: %w", err)
	}
	return guards, nil
}

const microSQL = `(pg_catalog.date_part('epoch', %s) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8`

// guardsSQL finds the names of prepared transactions, which have no pid in pg_locks, by the lock of their own
// transaction id.
var guardsSQL = `
	SELECT coalesce(pg_catalog.json_agg(g ORDER BY g.since), '[]')::pg_catalog.text, pg_catalog.pg_backend_pid() FROM (
		SELECT coalesce(l.pid, 0) AS pid, l.virtualtransaction AS transaction, coalesce(a.application_name, '') AS application_name,
			coalesce(r.rolname, x.owner)::pg_catalog.text AS role, coalesce(a.state, '') AS state, coalesce(x.gid, '') AS prepared,
			coalesce(` + fmt.Sprintf(microSQL, "coalesce(a.xact_start, x.prepared)") + `, 0) AS since,
			coalesce(` + fmt.Sprintf(microSQL, "a.backend_start") + `, 0) AS start,
			coalesce(r.rolsuper, false) AS superuser,
			coalesce(me.rolsuper OR NOT r.rolsuper AND (pg_catalog.pg_has_role(a.usesysid, 'USAGE'::pg_catalog.text)
				OR pg_catalog.pg_has_role('pg_signal_backend'::pg_catalog.name, 'USAGE'::pg_catalog.text)), false) AS may_end
		FROM (SELECT pid, virtualtransaction FROM pg_catalog.pg_locks WHERE %s) AS l
		JOIN pg_catalog.pg_roles AS me ON me.rolname OPERATOR(pg_catalog.=) current_user
		LEFT JOIN LATERAL pg_catalog.pg_stat_get_activity(coalesce(l.pid, 0)) AS a ON true
		LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) a.usesysid
		LEFT JOIN pg_catalog.pg_locks AS t ON l.pid IS NULL AND t.pid IS NULL AND t.granted
			AND t.locktype OPERATOR(pg_catalog.=) 'transactionid' AND t.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
		LEFT JOIN pg_catalog.pg_prepared_xacts AS x ON x.transaction OPERATOR(pg_catalog.=) t.transactionid
	) AS g`

// EndGuards ends the sessions of the transactions that the role may end and that still share the lock, if session
// and transaction are exactly those that were seen. The same statement checks the lock. The signal could reach
// another transaction only if the guarded one ended in the microseconds between the check and the signal. It
// returns how many sessions it signaled. It ends the watch of s.
func EndGuards(s *pgsession.Session, lock namespace.Tag, guards []Guarded) (ended int, err error) {
	var these []string
	for _, g := range guards {
		if g.MayEnd && g.PID != 0 {
			these = append(these, fmt.Sprintf("(%d, %s, %d)", g.PID, pgsession.Literal(g.Transaction), g.StartMicro))
		}
	}
	if len(these) == 0 {
		return 0, nil
	}
	row, err := s.Query(fmt.Sprintf(endGuardsSQL, strings.Join(these, ", "), whereShared(lock)))
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(row[0], &ended)
	return ended, err
}

// whereShared selects the sessions that share a lock.
func whereShared(lock namespace.Tag) string {
	return pgsession.WhereKey(lock) + ` AND mode OPERATOR(pg_catalog.=) 'ShareLock' AND granted`
}

// endGuardsSQL completes its selection before it calls the function.
var endGuardsSQL = `
	WITH these (pid, transaction, start) AS (VALUES %s), ending AS MATERIALIZED (
		SELECT l.pid FROM (SELECT pid, virtualtransaction FROM pg_catalog.pg_locks WHERE %s) AS l
		JOIN these AS g ON g.pid OPERATOR(pg_catalog.=) l.pid AND g.transaction OPERATOR(pg_catalog.=) l.virtualtransaction
		JOIN LATERAL pg_catalog.pg_stat_get_activity(l.pid) AS a
			ON g.start OPERATOR(pg_catalog.=) coalesce(` + fmt.Sprintf(microSQL, "a.backend_start") + `, 0)
	)
	SELECT (SELECT pg_catalog.count(*) FILTER (WHERE ended) FROM (SELECT pg_catalog.pg_terminate_backend(pid) AS ended FROM ending) AS e),
		pg_catalog.pg_backend_pid()`
