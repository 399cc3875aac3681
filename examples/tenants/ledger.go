package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A ledger is the table in which the tenants' work writes. It knows nothing of locks and leases. n orders
// the writes of a tenant: the guard of a new term waits for transactions of the last one.
type ledger struct{ pool *pgxpool.Pool }

const ledgerSchema = `CREATE TABLE acts (
	n      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	tenant text NOT NULL,
	term   bigint NOT NULL,
	node   text NOT NULL,
	at     timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// A judgement is what the table shows.
type judgement struct {
	Rows    int
	Tenants int // with rows
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

// judge finds what must not be.
func (l ledger) judge(ctx context.Context) (judgement, error) {
	rows, _ := l.pool.Query(ctx, judgeSQL)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[judgement])
}

// gapsSQL has for each term that began since a moment, but the first of a tenant, for how long nobody had
// written then. Before that moment nothing was wrong, so that time does not count.
const gapsSQL = `
SELECT tenant, node, at - greatest(last, $1) AS gap FROM (
	SELECT *, lag(at) OVER tenants AS last, max(term) OVER (tenants ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
	FROM acts WINDOW tenants AS (PARTITION BY tenant ORDER BY n)
) a WHERE at >= $1 AND term > highest AND tenant = ANY ($2) ORDER BY gap`

// A gap is the time before a term of a tenant in which nobody worked for it.
type gap struct {
	Tenant string
	Node   string // that works now
	Gap    time.Duration
}

// gaps are those of terms that began since a moment, of some tenants, the shortest first.
func (l ledger) gaps(ctx context.Context, since time.Time, tenants []string) ([]gap, error) {
	rows, _ := l.pool.Query(ctx, gapsSQL, since, tenants)
	return pgx.CollectRows(rows, pgx.RowToStructByName[gap])
}
