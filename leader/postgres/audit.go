package postgres

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
)

// auditSQL reads the row of an election and checks whether the role may still count in the table. It checks
// the rights first, because a table that is gone or hidden makes the server return an error.
const auditSQL = `SELECT pg_catalog.set_config('lock_timeout', '%[4]dms', true);
SELECT pg_catalog.has_table_privilege(%[3]s, 'INSERT') AND pg_catalog.has_table_privilege(%[3]s, 'UPDATE'),
	coalesce(t.era, 0), coalesce(t.n, 0), coalesce(t.ended_at IS NULL AND t.pid IN (0, pg_catalog.pg_backend_pid()), false), pg_catalog.pg_backend_pid()
FROM (SELECT 1) AS one LEFT JOIN (SELECT era, n, ended_at, pid FROM %[1]s WHERE election OPERATOR(pg_catalog.=) %[2]s) AS t ON true`

// auditWait limits the wait for the lock of a session that changes the table. An audit is not urgent.
const auditWait = 50 * time.Millisecond

// audit checks that the table is as this leader left it. A returned error means that the session is lost.
func (b *Backend) audit(t *lockSession, term driver.Term) error {
	if b.config.NoTerms {
		return nil
	}
	row, err := t.session.QueryWithin(b.ttl, fmt.Sprintf(auditSQL, b.table, b.electionSQL(), pgsession.Literal(b.table), auditWait.Milliseconds()))
	switch state := sqlstate.Of(err); {
	case err == nil:
		b.setProblem(b.judgeRow(row, term))
	case t.session.Look(time.Now(), false).Loss != nil:
		return err
	case state == sqlstate.UndefinedTable, state == sqlstate.InvalidSchema, state == sqlstate.Privilege:
		b.setProblem(&TableError{Table: b.config.Table, Missing: state != sqlstate.Privilege, Cause: err})
	default:
		// Somebody is changing the table right now, or the server cannot answer.
	}
	return nil
}

// judgeRow returns the problem with the row that an audit found. If the row belongs to nobody and its term is
// greater, it is a new era and no problem.
func (b *Backend) judgeRow(row []string, term driver.Term) error {
	if row[0] != "t" {
		return &TableError{Table: b.config.Table, Cause: errNoRight}
	}
	era, _ := strconv.ParseUint(row[1], 10, 15) // beyond the limits no later term can be counted, which is just as bad
	n, _ := strconv.ParseUint(row[2], 10, 48)
	found := driver.Term{Era: uint16(era), N: n}
	if row[3] == "t" && found.Compare(term) >= 0 {
		return nil
	}
	return &RowError{Election: b.config.Key.String(), Table: b.config.Table, Term: term, Found: found}
}

func (b *Backend) setProblem(err error) {
	if err == nil {
		b.problem.Store(nil)
		return
	}
	b.problem.Store(&err)
}

// Audit returns the problem that the last check found, nil if there is none. The checks are:
//
//   - A leader checks the table of terms after each renewal. If the table is gone or the role has lost its
//     rights, the error is a *TableError. If somebody has changed the election's row, it is a *RowError.
//     Guarded transactions continue, because they need no table.
//   - A follower compares the name of its election with the leader's, in its first refused attempts. If
//     they differ, the error is a *NameError.
func (b *Backend) Audit() error {
	if err := b.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// compareLooks is the maximum number of looks for the leader's name in a session. The leader may still be
// taking over.
const compareLooks = 10

// nameSQL selects the leader's identity and its name for the election, if the session that counted the last
// term still exists.
const nameSQL = `SELECT pg_catalog.set_config('lock_timeout', '%[3]dms', true);
SELECT coalesce(t.name, ''), coalesce(t.identity, ''), pg_catalog.pg_backend_pid()
FROM (SELECT 1) AS one LEFT JOIN (SELECT t.name, t.identity FROM %[1]s AS t, pg_catalog.pg_stat_get_activity(t.pid) AS a
	WHERE t.election OPERATOR(pg_catalog.=) %[2]s AND t.ended_at IS NULL
		AND coalesce(a.backend_start, t.backend_start) OPERATOR(pg_catalog.=) t.backend_start) AS t ON true`

// compareNames checks, once for a session and leader, whether the leader has the same name for the election.
// Two elections that got one key by mistake share one leader, and each node of the other election waits
// without end.
func (b *Backend) compareNames(t *lockSession) {
	if b.name == "" || b.config.NoTerms || t.compared >= compareLooks {
		return
	}
	t.compared++
	row, err := t.session.Query(fmt.Sprintf(nameSQL, b.table, b.electionSQL(), auditWait.Milliseconds()))
	if err != nil || row[1] == "" {
		return // the next call handles a lost session
	}
	t.compared = compareLooks
	if row[0] == "" || row[0] == b.name {
		b.setProblem(nil)
		return
	}
	b.setProblem(&NameError{Key: b.config.Key.String(), Name: b.name, Other: row[0], Leader: row[1]})
}

// nameIn returns the election's name for the table, in ASCII, so that every database can store it.
func (b *Backend) nameIn(s driver.Standing) string {
	if s.Name == b.config.Key.String() || s.Name == b.config.Key.Tag().String() {
		return "" // two programs may spell one key differently
	}
	return pgsession.ApplicationName(s.Name)
}
