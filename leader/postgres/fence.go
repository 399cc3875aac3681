package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
)

// fenceSQL counts a term, under the election lock. RETURNING's subquery sees the row as it was before. The
// previous term ended in good order if its row says so and belongs to the history in which this term is
// counted. A server that has forgotten some terms may show the end of an older one.
const fenceSQL = `INSERT INTO %[1]s AS t (election, era, n, timeline, system_identifier, identity, pid, backend_start, since, server_start, written, name)
SELECT %[2]s, 1, 1, ` + pgtable.TimelineSQL + `,
	c.system_identifier, %[3]s, a.pid, a.backend_start, pg_catalog.clock_timestamp(), pg_catalog.pg_postmaster_start_time(), ` + pgtable.WrittenSQL + `, nullif(%[4]s, '')
FROM pg_catalog.pg_control_system() AS c, pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS a
ON CONFLICT (election) DO UPDATE SET
	era = ` + pgtable.NextEraSQL + `,
	n = %[5]s, timeline = excluded.timeline, system_identifier = excluded.system_identifier, identity = excluded.identity,
	pid = excluded.pid, backend_start = excluded.backend_start, since = excluded.since, ended_at = NULL,
	server_start = excluded.server_start, written = excluded.written, name = excluded.name
RETURNING t.era, t.n, EXISTS (SELECT FROM %[1]s AS o WHERE o.election = %[2]s AND o.ended_at IS NOT NULL AND %[6]s), pg_catalog.pg_backend_pid()`

// endSQL marks a term as ended in good order. Its commit need not be flushed: if a crash forgets the mark,
// the successor is only more careful.
const endSQL = `UPDATE %s SET ended_at = pg_catalog.clock_timestamp(), written = ` + pgtable.WrittenSQL + `
WHERE election = %s AND era = %d AND n = %d AND pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL;
SELECT pg_catalog.pg_backend_pid()`

// fence counts a new term and reports whether the previous one ended in good order.
func (b *Backend) fence(ctx context.Context, t *lockSession) (term driver.Term, clean bool, err error) {
	if b.config.NoTerms {
		return driver.Term{}, false, nil
	}
	row, err := b.count(ctx, t)
	if err != nil {
		return driver.Term{}, false, err
	}
	era, eraErr := strconv.ParseUint(row[0], 10, 64)
	n, nErr := strconv.ParseUint(row[1], 10, 64)
	if eraErr != nil || nErr != nil || era > driver.MaxEra || n > driver.MaxN {
		return driver.Term{}, false, fmt.Errorf("leader: term %s.%s of %s in %s is beyond %d.%d: no greater one can be counted",
			row[0], row[1], b.config.Key, b.config.Table, driver.MaxEra, driver.MaxN)
	}
	return driver.Term{Era: uint16(era), N: n}, row[2] == "t", nil
}

// count writes the row.
func (b *Backend) count(ctx context.Context, t *lockSession) (row []string, err error) {
	sql := rowLockSQL(ctx, b.ttl) + b.countSQL()
	row, err = t.session.Query(sql)
	if b.config.CreateTable && sqlstate.Of(err) == sqlstate.UndefinedTable {
		if err := b.Migrate(ctx); err != nil {
			return nil, err
		}
		row, err = t.session.Query(sql)
	}
	if err != nil {
		return nil, b.fenceError(t, err)
	}
	return row, nil
}

func (b *Backend) fenceError(t *lockSession, err error) error {
	switch state := sqlstate.Of(err); state {
	case sqlstate.UndefinedTable, sqlstate.UndefinedColumn, sqlstate.Privilege:
		return &TableError{
			Table: b.config.Table, Missing: state == sqlstate.UndefinedTable, Outdated: state == sqlstate.UndefinedColumn, Awaited: b.config.AwaitTable, Cause: err,
		}
	case sqlstate.LockNotAvailable:
		return fmt.Errorf("leader: another transaction has locked the row of %s in %s, which counts terms%s: %w",
			b.config.Key, b.config.Table, b.rowBlocker(t), err)
	}
	return fmt.Errorf("leader: counting the term of %s in %s: %w", b.config.Key, b.config.Table, err)
}

// rowBlocker returns the owner of the row's lock, after ": ", or "".
func (b *Backend) rowBlocker(t *lockSession) string {
	g, ok, err := pgguard.RowBlocker(t.session, b.table, "election OPERATOR(pg_catalog.=) "+b.electionSQL())
	if err != nil || !ok {
		return ""
	}
	by := guardedBy(g)
	return by.blocker()
}

// markEnded marks the term as ended in good order. Without the mark the successor is only more careful.
func (b *Backend) markEnded(ctx context.Context, t *lockSession) {
	if b.config.NoTerms {
		return
	}
	term := b.Term()
	if _, err := t.session.Query(rowLockSQL(ctx, b.ttl) + b.endedSQL(term)); err != nil {
		b.config.Logger.Warn("end of term not recorded", slog.String("term", term.String()), slog.Any("error", err))
	}
}

func (b *Backend) countSQL() string {
	known := b.own.last()
	return fmt.Sprintf(fenceSQL, b.table, b.electionSQL(), pgsession.Literal(b.identity), pgsession.Literal(b.name),
		pgtable.NextTermSQL(fmt.Sprintf("t.era = %d AND t.n = %d", known.Era, known.N)), pgtable.SameHistorySQL("o", "t"))
}

func (b *Backend) endedSQL(term driver.Term) string {
	return fmt.Sprintf(endSQL, b.table, b.electionSQL(), term.Era, term.N)
}

// ownFor is how long after the loss of its session a leader still treats its term as the last, unless it has
// seen another. A restore takes longer.
const ownFor = time.Minute

// An ownTerm is the last term of this process, while no other node is known to have led since.
type ownTerm struct {
	term driver.Term
	lost time.Time // zero = it has not been lost
}

func (o ownTerm) last() driver.Term {
	if !o.lost.IsZero() && time.Since(o.lost) > ownFor {
		return driver.Term{}
	}
	return o.term
}

// warm makes the server plan the statements of a takeover once per session, before they are urgent. The
// server then has the needed catalog entries in its cache. warm ignores errors: they recur when they matter.
func (b *Backend) warm(t *lockSession) {
	if t.warm {
		return
	}
	t.warm = true
	_, _, _ = pgelection.Incarnation(t.session, b.config.Key)
	if !b.config.NoTerms {
		_, _ = t.session.Query("EXPLAIN " + b.countSQL() + "; EXPLAIN " + b.endedSQL(driver.Term{}))
	}
}

// electionSQL returns the election's name in the table, as SQL. It uses the key's numbers, because two
// programs may have different names for them.
func (b *Backend) electionSQL() string { return pgsession.Literal(b.config.Key.Tag().String()) }

// rowLockSQL limits the wait for a row to the time left of ctx, so that the error can be reported in time. A
// statement may continue for a moment after the end of ctx (cancelGrace).
func rowLockSQL(ctx context.Context, ttl time.Duration) string {
	wait := max(min(left(ctx), ttl/2, 5*time.Second/2), cancelGrace/4)
	return "SELECT pg_catalog.set_config('lock_timeout', '" + pgsession.Milliseconds(wait) + "', true); "
}
