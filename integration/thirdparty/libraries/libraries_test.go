// Package libraries shows that transactions of the libraries on top of database/sql
// can be locked and guarded.
package libraries

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A transaction is one of a library.
type transaction struct {
	advisory.SQLTx
	commit, rollback func() error
}

// begins begin a transaction of each library.
var begins = map[string]func(t *testing.T, db *sql.DB) transaction{
	"database/sql, and what sqlc makes": func(t *testing.T, db *sql.DB) transaction {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return transaction{tx, tx.Commit, tx.Rollback}
	},
	"sqlx": func(t *testing.T, db *sql.DB) transaction {
		t.Helper()
		tx, err := sqlx.NewDb(db, "pgx").BeginTxx(t.Context(), nil)
		require.NoError(t, err)
		return transaction{tx, tx.Commit, tx.Rollback}
	},
	"bun": func(t *testing.T, db *sql.DB) transaction {
		t.Helper()
		tx, err := bun.NewDB(db, pgdialect.New()).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return transaction{tx, tx.Commit, tx.Rollback}
	},
	"GORM": func(t *testing.T, db *sql.DB) transaction {
		t.Helper()
		g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}))
		require.NoError(t, err)
		tx := g.WithContext(t.Context()).Begin()
		require.NoError(t, tx.Error)
		return transaction{tx.Statement.ConnPool, func() error { return tx.Commit().Error }, func() error { return tx.Rollback().Error }}
	},
	"ent": func(t *testing.T, db *sql.DB) transaction {
		t.Helper()
		tx, err := entsql.OpenDB(dialect.Postgres, db).Tx(t.Context())
		require.NoError(t, err)
		return transaction{tx.(*entsql.Tx), tx.Commit, tx.Rollback} // as a client's Tx is with the feature sql/execquery
	},
}

func TestTransactionsOfLibrariesAreLocked(t *testing.T) {
	t.Parallel()
	customers := namespace.Must(1, "customer")
	text, err := customers.Text("what? it's $1")
	require.NoError(t, err)
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("pgx", pgtest.DSN(t))
			require.NoError(t, err)
			defer db.Close()
			tx := begin(t, db)
			require.NoError(t, advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{}, customers.ID(42), text))
			other := begin(t, db)
			require.ErrorIs(t, advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Try: true}, customers.ID(42)), advisory.ErrHeld)
			require.ErrorIs(t, advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Try: true}, text), advisory.ErrHeld)
			require.NoError(t, tx.commit())
			require.NoError(t, advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Try: true}, customers.ID(42), text))
			require.NoError(t, other.rollback())
		})
	}
}

func TestPoolsOfLibrariesAreNoTransactions(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.DSN(t))
	require.NoError(t, err)
	defer db.Close()
	g, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: db}))
	require.NoError(t, err)
	for name, pool := range map[string]advisory.SQLTx{
		"sqlx": sqlx.NewDb(db, "pgx"),
		"bun":  bun.NewDB(db, pgdialect.New()),
		"GORM": g.Statement.ConnPool,
		"ent":  entsql.OpenDB(dialect.Postgres, db),
	} {
		require.ErrorIs(t, advisory.LockSQLTx(context.WithoutCancel(t.Context()), pool, advisory.TxOptions{}, namespace.Pair(1, 2)), advisory.ErrNoTransaction, name)
	}
}
