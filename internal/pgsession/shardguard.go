package pgsession

import "fmt"

// ShardGuards are the statements of guards of shards whose terms one table counts.
type ShardGuards struct{ statements guardStatements }

// NewShardGuards returns those for a table, as SQL.
func NewShardGuards(table string) *ShardGuards {
	refusals := fmt.Sprintf(shardGuard, table)
	return &ShardGuards{guardStatements{
		guardingSQL(guardAlone, refusals, 5), guardingSQL(guardFirst, refusals, 5), guardingSQL(guardSecond, refusals, 5),
	}}
}

// shardGuard locks the row of a shard if it is as the term has left it: the next claim, which changes the row, leaves the shard alone until the transaction has
// ended. In read committed the server looks at the newest version of the row; in the levels above it, a row that was changed since the snapshot is an
// error (PostgreSQL manual, sections 13.2.1 and 13.2.2).
const shardGuard = `WHEN NOT coalesce((SELECT true FROM %s AS t WHERE t.shards OPERATOR(pg_catalog.=) $2::pg_catalog.text AND t.name OPERATOR(pg_catalog.=) $3::pg_catalog.text
		AND t.era OPERATOR(pg_catalog.=) $4::pg_catalog.int4 AND t.n OPERATOR(pg_catalog.=) $5::pg_catalog.int8 FOR SHARE), false)
	THEN '` + refusal + `: the term has ended'`

// A GuardedShard is a shard in a term.
type GuardedShard struct {
	Guards *ShardGuards
	Group  string // as in the table
	Name   string
	Era    int
	N      int64
}

// args are the arguments of a guard's statement, between the mark and those of its Patience.
func (t *GuardedShard) args() []any { return []any{t.Group, t.Name, t.Era, t.N} }
