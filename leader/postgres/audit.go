package postgres

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
)

// auditSQL looks at the row of an election, and whether the role may still count in the table. It asks for the rights
// first, because a table that is gone, or hidden, is an error of the server's.
const auditSQL = `SELECT pg_catalog.set_config('lock_timeout', '%[4]dms', true);
SELECT pg_catalog.has_table_privilege(%[3]s, 'INSERT') AND pg_catalog.has_table_privilege(%[3]s, 'UPDATE'),
	coalesce(t.era, 0), coalesce(t.n, 0), coalesce(t.ended_at IS NULL AND t.pid IN (0, pg_catalog.pg_backend_pid()), false), pg_catalog.pg_backend_pid()
FROM (SELECT 1) AS one LEFT JOIN (SELECT era, n, ended_at, pid FROM %[1]s WHERE election OPERATOR(pg_catalog.=) %[2]s) AS t ON true`

// auditWait is how long the look waits at most for the lock of whoever changes the table: it is nobody's hurry.
const auditWait = 50 * time.Millisecond

// audit looks whether the table is as this leader left it. The error is the session's loss.
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
		// Somebody changes the table just now, or the server cannot say.
	}
	return nil
}

// judgeRow returns what is wrong with the row that an audit found. A greater term in a row of nobody's is a new era.
func (b *Backend) judgeRow(row []string, term driver.Term) error {
	if row[0] != "t" {
		return &TableError{Table: b.config.Table, Cause: errNoRight}
	}
	era, _ := strconv.ParseUint(row[1], 10, 15) // beyond the limits no later term can be counted, which is as bad
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

// Audit returns what is wrong though this node leads, or follows; nil = nothing, as far as the last look has shown. On a
// leader each renewal is followed by a look at the table of terms: it is gone or the role lost its rights, a *TableError, or
// somebody has changed the election's row, a *RowError. Guarded transactions go on as before, because they need no table.
// On a follower the first refused attempts compare the name of its election with the leader's: a *NameError.
func (b *Backend) Audit() error {
	if err := b.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// compareLooks is how often a session looks for the leader's name at most: the leader may just be taking over.
const compareLooks = 10

// nameSQL is what the leader calls the election, and who it is, if the session that counted the last term lives.
const nameSQL = `SELECT pg_catalog.set_config('lock_timeout', '%[3]dms', true);
SELECT coalesce(t.name, ''), coalesce(t.identity, ''), pg_catalog.pg_backend_pid()
FROM (SELECT 1) AS one LEFT JOIN (SELECT t.name, t.identity FROM %[1]s AS t, pg_catalog.pg_stat_get_activity(t.pid) AS a
	WHERE t.election OPERATOR(pg_catalog.=) %[2]s AND t.ended_at IS NULL
		AND coalesce(a.backend_start, t.backend_start) OPERATOR(pg_catalog.=) t.backend_start) AS t ON true`

// compareNames looks, once for a session and leader, whether the leader has the same name for the election: two elections
// that got one key by mistake have one leader together, and each node of the other one waits for ever.
func (b *Backend) compareNames(t *lockSession) {
	if b.name == "" || b.config.NoTerms || t.compared >= compareLooks {
		return
	}
	t.compared++
	row, err := t.session.Query(fmt.Sprintf(nameSQL, b.table, b.electionSQL(), auditWait.Milliseconds()))
	if err != nil || row[1] == "" {
		return // a session that is lost is for the next call
	}
	t.compared = compareLooks
	if row[0] == "" || row[0] == b.name {
		b.setProblem(nil)
		return
	}
	b.setProblem(&NameError{Key: b.config.Key.String(), Name: b.name, Other: row[0], Leader: row[1]})
}

// nameIn is the name of an election as the table has it: in ASCII, so that every database can store it.
func (b *Backend) nameIn(s driver.Standing) string {
	if s.Name == b.config.Key.String() || s.Name == b.config.Key.Tag().String() {
		return "" // two programs may spell one key in two ways
	}
	return pgsession.ApplicationName(s.Name)
}
