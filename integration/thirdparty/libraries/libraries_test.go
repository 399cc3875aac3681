// Package libraries shows that transactions of the libraries on top of database/sql
// can be locked and guarded.
package libraries

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

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
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	leaderpostgres "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
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

// requireGuarded has guard let a transaction of the library write, and refuse one after
// depose has let somebody else come.
func requireGuarded(t *testing.T, begin func(*testing.T, *sql.DB) transaction, dsn string, guard func(transaction) error, depose func(), refused error) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE written (what text)")
	require.NoError(t, err)
	write := func(tx transaction, what string) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO written VALUES ('"+what+"')")
		return err
	}
	tx := begin(t, db)
	require.NoError(t, guard(tx))
	require.NoError(t, write(tx, "in time"))
	require.NoError(t, tx.commit())

	depose()
	late := begin(t, db)
	require.ErrorIs(t, guard(late), refused)
	require.Error(t, write(late, "late"), "the transaction is aborted")
	require.NoError(t, late.rollback())
	unguarded := begin(t, db)
	require.NoError(t, write(unguarded, "unguarded"), "control")
	require.NoError(t, unguarded.commit())

	var all string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT string_agg(what, ', ') FROM written").Scan(&all))
	require.Equal(t, "in time, unguarded", all)
}

func TestTransactionsOfLibrariesAreGuardedByTheTermOfALeader(t *testing.T) {
	t.Parallel()
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			first, stop := lead(t, dsn)
			defer func() { stop() }()
			requireGuarded(t, begin, dsn,
				func(tx transaction) error { return leaderpostgres.GuardSQL(context.WithoutCancel(first), tx) },
				func() {
					stop()
					_, stop = lead(t, dsn)
				},
				leader.ErrNotLeader)
		})
	}
}

// lead returns the context of a leader's work, and what ends its leadership and waits for that.
func lead(t *testing.T, dsn string) (work context.Context, stop func()) {
	t.Helper()
	backend, err := leaderpostgres.New(leaderpostgres.Config{DSN: dsn, Key: namespace.Pair(1, 100), CreateTable: true})
	require.NoError(t, err)
	elector, err := leader.New(leader.Config{Name: "libraries", Backend: backend})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	leads, ended := make(chan context.Context, 1), make(chan error, 1)
	go func() {
		ended <- elector.Run(ctx, func(ctx context.Context) error {
			leads <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return await.Receive(t, await.Patience, leads, "nobody leads"), stop
}

func TestTransactionsOfLibrariesAreGuardedByALease(t *testing.T) {
	t.Parallel()
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			store, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
			require.NoError(t, err)
			defer store.Close()
			require.NoError(t, store.Migrate(t.Context()))
			acquire := func(holder string) lease.Lease {
				l, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "what? it's $1", Holder: holder, TTL: time.Hour})
				require.NoError(t, err)
				return l
			}
			first := acquire("first?")
			requireGuarded(t, begin, dsn,
				func(tx transaction) error { return leasepostgres.GuardSQL(t.Context(), tx, first.Claim) },
				func() {
					require.NoError(t, store.Release(t.Context(), first.Claim))
					acquire("second")
				},
				lease.ErrStale)
		})
	}
}
