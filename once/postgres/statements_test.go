package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

const (
	rounds         = 15 // of ticks of several jobs; each round has jobs of its own
	mostStatements = 30 // different texts that the rounds may send
)

// Jobs, nodes and savepoints are no part of a statement's text.
func TestDifferentTicksAreNoDifferentStatements(t *testing.T) {
	t.Parallel()
	counter := statements.Start(t).Count(t)
	store := newStore(t, counter.DSN)
	config, err := pgx.ParseConfig(counter.DSN)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	own, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	pool := newPool(t, counter.DSN)
	counter.Reset(t)

	for round := range rounds {
		job, tick := fmt.Sprint("job ", round), thisMinute()
		tx, err := own.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, did := range []bool{true, false} {
			result, err := postgres.DoSQLTx(t.Context(), tx, job, tick, func(ctx context.Context) error {
				_, err := postgres.DoSQLTx(ctx, tx, job+" inside", tick, func(context.Context) error { return errNoPaper })
				assert.ErrorIs(t, err, errNoPaper)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, did, result.Did)
		}
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(other pgx.Tx) error {
			result, err := postgres.DoTx(t.Context(), other, job, tick, nothing) // it waits for the first one
			assert.Equal(t, once.Running, result.State)
			return err
		}))
		require.NoError(t, tx.Commit())
		_, err = newRunner(t, once.Config{Store: store}).Do(t.Context(), job+" of a runner", thisMinute(), nothing)
		require.NoError(t, err)
	}

	require.NoError(t, own.Raw(func(driver any) error {
		assert.LessOrEqual(t, statements.Prepared(t, driver.(*stdlib.Conn).Conn()), 5, "in the caller's session")
		return nil
	}))
	if n, ok := counter.Entries(t); ok {
		require.Greater(t, n, 5, "they are counted")
		assert.LessOrEqual(t, n, mostStatements)
		t.Log("entries of pg_stat_statements:", n)
	}
	texts := counter.Texts(t)
	require.Greater(t, len(texts), 5, "the log was read")
	if !assert.LessOrEqual(t, len(texts), mostStatements) {
		for text, n := range texts {
			t.Log(n, text)
		}
	}
}
