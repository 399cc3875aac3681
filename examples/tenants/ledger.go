package main

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The table that the tenants' work writes to. It knows nothing of locks and leases. n orders the
// writes of a tenant: the guard of a new term waits for transactions of the last one.
const ledgerSchema = `CREATE TABLE acts (
	n      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	tenant text NOT NULL,
	term   bigint NOT NULL,
	node   text NOT NULL,
	at     timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// A judgement is the content of the table, with its violations.
type judgement struct {
	Rows    int
	Tenants int // that have rows
	Terms   int // of all tenants
	Shared  int // terms in which more than one node wrote
	Stale   int // rows of an old term after one of a new term
	Fallen  int // terms that began after a higher one
}

const judgeSQL = `
WITH acts AS (
	SELECT *, max(term) OVER (PARTITION BY tenant ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM acts
), terms AS (
	SELECT count(DISTINCT node) AS nodes, (array_agg(term < highest ORDER BY n))[1] AS fallen FROM acts GROUP BY tenant, term
)
SELECT (SELECT count(*) FROM acts) AS rows, (SELECT count(DISTINCT tenant) FROM acts) AS tenants,
	(SELECT count(*) FROM terms) AS terms, (SELECT count(*) FROM terms WHERE nodes > 1) AS shared,
	(SELECT count(*) FROM acts WHERE term < highest) AS stale, (SELECT count(*) FROM terms WHERE fallen) AS fallen`

// judge counts rows, terms and violations.
func judge(ctx context.Context, pool *pgxpool.Pool) (judgement, error) {
	rows, _ := pool.Query(ctx, judgeSQL)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[judgement])
}

// gapsSQL returns, for each term that began since a moment, how long nobody had written before it. It
// leaves out each tenant's first term. The time before that moment does not count: nothing was wrong then.
const gapsSQL = `
SELECT tenant, node, at - greatest(last, $1) AS gap FROM (
	SELECT *, lag(at) OVER tenants AS last, max(term) OVER (tenants ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
	FROM acts WINDOW tenants AS (PARTITION BY tenant ORDER BY n)
) a WHERE at >= $1 AND term > highest AND tenant = ANY ($2) ORDER BY gap`

// A gap is the time before a term of a tenant in which nobody worked for it.
type gap struct {
	Tenant string
	Node   string // that works for it now
	Gap    time.Duration
}

// gaps returns the gaps of some tenants before terms that began since a moment, the shortest first.
func gaps(ctx context.Context, pool *pgxpool.Pool, since time.Time, tenants []string) ([]gap, error) {
	rows, _ := pool.Query(ctx, gapsSQL, since, tenants)
	return pgx.CollectRows(rows, pgx.RowToStructByName[gap])
}

// tenantsOf returns the tenants that have gaps.
func tenantsOf(gaps []gap) (names []string) {
	for _, g := range gaps {
		names = append(names, g.Tenant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
