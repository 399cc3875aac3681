//go:build integration

package libraries

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/namespace"
)

// Through a pooler that gives each transaction whatever session is free, the lock is the
// transaction's and goes with it: nobody who gets the session later has it.
func TestTransactionsOfLibrariesAreLockedBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	// One session more than a test needs; a pooler of this age knows no prepared statements.
	dsn := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=2", "ignore_startup_parameters=extra_float_digits") +
		"&default_query_exec_mode=simple_protocol"
	direct, err := sql.Open("pgx", server.DSN(""))
	require.NoError(t, err)
	defer direct.Close()
	customers := namespace.Must(1, "customer")
	text, err := customers.Text("what? it's $1")
	require.NoError(t, err)
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			db, err := sql.Open("pgx", dsn)
			require.NoError(t, err)
			defer db.Close()
			locks := func() (n int) {
				err := direct.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n)
				require.NoError(t, err)
				return n
			}
			for range 3 { // each on whatever session comes
				tx := begin(t, db)
				require.NoError(t, advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{}, customers.ID(42), text))
				require.Equal(t, 2, locks())
				other := begin(t, db)
				require.ErrorIs(t, advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Try: true}, customers.ID(42)), advisory.ErrHeld)
				require.ErrorIs(t, advisory.LockSQLTx(t.Context(), other, advisory.TxOptions{Try: true}, text), advisory.ErrHeld)
				require.NoError(t, other.rollback())
				require.NoError(t, tx.commit())
				require.Zero(t, locks(), "nothing is left on the pooler's sessions")
			}
			require.ErrorIs(t, advisory.LockSQLTx(t.Context(), struct{ advisory.SQLTx }{db}, advisory.TxOptions{}, customers.ID(42)), advisory.ErrNoTransaction)
			require.Zero(t, locks())
		})
	}
}

func TestADriverThatPreparesStatementsIsToldOfThePooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	dsn := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=1", "ignore_startup_parameters=extra_float_digits")
	lock := func(dsn string) error {
		db, err := sql.Open("pgx", dsn)
		require.NoError(t, err)
		defer db.Close()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		return advisory.LockSQLTx(t.Context(), tx, advisory.TxOptions{}, namespace.Must(1, "customer").ID(42))
	}
	require.NoError(t, lock(dsn), "the session has no statement yet")
	err := lock(dsn)
	require.ErrorIs(t, err, advisory.ErrPooler)
	require.ErrorContains(t, err, "default_query_exec_mode=exec")
	for _, mode := range []string{"exec", "simple_protocol"} {
		require.NoError(t, lock(dsn+"&default_query_exec_mode="+mode), mode)
	}
}
