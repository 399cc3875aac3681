package postgres

import (
	"fmt"

	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// newGuards returns the guards of shards whose terms a table counts, given as SQL.
func newGuards(table string) *pgguard.Statements {
	return pgguard.NewStatements(fmt.Sprintf(shardGuard, table), 6)
}

// shardGuard shares the lock of the shard's guards, by which others see whose transaction it is, and locks the row of a shard if it is as the term has left it: the next claim, which changes the row, leaves the shard alone until the transaction has
// ended. In read committed the server looks at the newest version of the row; in the levels above it, a row that was changed since the snapshot is an
// error (PostgreSQL manual, sections 13.2.1 and 13.2.2).
const shardGuard = `WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($6::pg_catalog.int8) THEN '` + pgguard.UnderWay + `'
	WHEN NOT coalesce((SELECT true FROM %s AS t WHERE t.shards OPERATOR(pg_catalog.=) $2::pg_catalog.text AND t.name OPERATOR(pg_catalog.=) $3::pg_catalog.text
		AND t.era OPERATOR(pg_catalog.=) $4::pg_catalog.int4 AND t.n OPERATOR(pg_catalog.=) $5::pg_catalog.int8 FOR SHARE), false)
	THEN '` + pgguard.TermOver + `'`

// guarding is what guards of a shard in a term take and set.
func (o *lockSession) guarding(g driver.Grant) pgguard.Guarding {
	group := o.backend.group
	lock, _ := group.Guard(g.Name).Single()
	return pgguard.Guarding{
		Statements: o.backend.guards,
		Args:       []any{group.Namespace.String(), g.Name, int(g.Term.Era), int64(g.Term.N), lock},
		Patience:   pgguard.Patience{Idle: o.ttl, Checks: o.session.Checks()},
	}
}
