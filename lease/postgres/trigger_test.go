package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestEachColumnOfATableWithALongNameHasItsFence(t *testing.T) {
	t.Parallel()
	j := newJudge(t, pgtest.DSN(t))
	table := strings.Repeat("é", 30)
	j.exec("CREATE TABLE " + table + " (first bigint, second bigint); INSERT INTO " + table + " VALUES (5, 5)")
	for _, column := range []string{"first", "second"} {
		j.exec(postgres.FenceTrigger(table, column))
	}
	for _, column := range []string{"first", "second"} {
		_, err := j.pool.Exec(t.Context(), "UPDATE "+table+" SET "+column+" = 4")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		assert.Equal(t, column, pgErr.ColumnName)
	}
}

func TestAFenceTriggerRefusesAnOlderToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ table, column string }{{"report", "token"}, {`Ops.Odd "one's $pglatch$`, `the "fence" %s`}} {
		j := newJudge(t, pgtest.DSN(t))
		j.exec(`CREATE SCHEMA "Ops"`)
		path := pgx.Identifier{c.table}
		if c.table != "report" {
			path = pgx.Identifier{"Ops", c.table[4:]}
		}
		table, column := path.Sanitize(), pgx.Identifier{c.column}.Sanitize()
		j.exec("CREATE TABLE " + table + " (id int PRIMARY KEY, body text, " + column + " bigint)")
		for range 2 {
			j.exec(postgres.FenceTrigger(c.table, c.column))
		}
		put := func(body string, token any) error {
			_, err := j.pool.Exec(t.Context(), "INSERT INTO "+table+" AS r VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body, "+
				column+" = excluded."+column, body, token)
			return err
		}
		require.NoError(t, put("before", nil))
		require.NoError(t, put("first", 7))
		require.NoError(t, put("same", 7))
		require.NoError(t, put("next", 9))
		for _, token := range []any{8, nil} {
			err := put("stale", token)
			var pgErr *pgconn.PgError
			require.True(t, errors.As(err, &pgErr), "%v", err)
			assert.Equal(t, postgres.FencedCode, pgErr.Code)
			assert.Equal(t, c.column, pgErr.ColumnName)
			assert.Contains(t, pgErr.Message, "has token 9, the write ")
		}
		assert.Equal(t, "next", one[string](j, "SELECT body FROM "+table))
	}
}
