package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	leaderpg "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// Shards, terms and marks are no part of the text of a guard, which pg_stat_statements leaves out, and Exec, by which
// guards send it over database/sql, does not prepare.
func TestGuardsOfDifferentShardsAreNoDifferentStatements(t *testing.T) {
	t.Parallel()
	counter := statements.Start(t).Count(t)
	node := open(t, newBackend(t, counter.DSN, nil), "a")
	var works []context.Context
	for i := range 30 {
		works = append(works, bound(t, node, fmt.Sprint("shard ", i)))
	}
	config, err := pgx.ParseConfig(counter.DSN)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	counter.Reset(t)

	for _, work := range works {
		require.NoError(t, postgres.InSQLTx(work, db, func(ctx context.Context, tx *sql.Tx) error { return leaderpg.GuardSQL(ctx, tx) }))
	}
	require.ErrorContains(t, postgres.InSQLTx(t.Context(), db, nil), "not the leader")

	own, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	require.NoError(t, own.Raw(func(driver any) error {
		assert.LessOrEqual(t, statements.Prepared(t, driver.(*stdlib.Conn).Conn()), 3)
		return nil
	}))
	const most = 10
	if n, ok := counter.Entries(t); ok {
		require.GreaterOrEqual(t, n, 3, "they are counted")
		assert.LessOrEqual(t, n, most)
		t.Log("entries of pg_stat_statements:", n)
	}
	guards := counter.Texts(t)
	require.GreaterOrEqual(t, len(guards), 3, "the log was read")
	if !assert.LessOrEqual(t, len(guards), most) {
		for text, n := range guards {
			t.Log(n, text)
		}
	}
}
