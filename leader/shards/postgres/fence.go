package postgres

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// newGuards returns the guards of shards whose terms are in the given table. table is SQL.
func newGuards(table string) *txguard.Statements {
	return txguard.NewStatements(fmt.Sprintf(shardGuard, table), 7)
}

// shardGuard first shares the lock of the shard's guards, by which others see whose transaction it is. Then
// it locks the shard's row if the row is as the term has left it. The next claim must change the row, so it
// leaves the shard alone until the transaction has ended. In read committed the server looks at the newest
// version of the row. In the levels above it, a row that has changed since the snapshot is an error
// (PostgreSQL manual, sections 13.2.1 and 13.2.2). The moment of the claim tells the row from that of a shard of
// the same name and term in another database.
var shardGuard = `WHEN NOT pg_catalog.pg_try_advisory_xact_lock_shared($6::pg_catalog.int8) THEN '` + pgguard.UnderWay + `'
	WHEN NOT coalesce((SELECT true FROM %s AS t WHERE t.shards OPERATOR(pg_catalog.=) $2::pg_catalog.text AND t.name OPERATOR(pg_catalog.=) $3::pg_catalog.text
		AND t.era OPERATOR(pg_catalog.=) $4::pg_catalog.int4 AND t.n OPERATOR(pg_catalog.=) $5::pg_catalog.int8
		AND ` + momentSQL + ` OPERATOR(pg_catalog.=) $7::pg_catalog.int8 FOR SHARE), false)
	THEN '` + pgguard.TermOver + `'`

var momentSQL = fmt.Sprintf(group.MomentSQL, "t.since")

// guardArgs returns the parameters of a shard's guards in a term.
func (o *lockSession) guardArgs(g driver.Grant) []any {
	all := o.backend.group
	lock, _ := all.Guard(g.Name).Single()
	o.mu.Lock()
	owned := o.held[g.Name] // of an earlier term, or none: the guards refuse
	o.mu.Unlock()
	return append([]any{all.Namespace.String(), g.Name, int(g.Term.Era), int64(g.Term.N), lock, owned.row.Moment},
		txguard.Limits{Idle: o.ttl, Checks: o.session.Checks()}.Args()...)
}
