package pgsession

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// As behind a transaction pooler, where another client has prepared the statement on the session.
func TestAStatementThatIsPreparedAlreadyIsSaidToBeAPoolers(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	lock := func(before string) error {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), before)
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = TxTry(context.WithoutCancel(t.Context()), FromSQL(tx), []namespace.Tag{pairKey}, session.Exclusive, true)
		return err
	}
	require.NoError(t, lock("SELECT 1"))
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement = $1", outcomeSQL).Scan(&name), "the driver prepares our query")
	db.SetMaxIdleConns(0) // the next connection is a new one
	err = lock(fmt.Sprintf("PREPARE %s AS SELECT 1", name))
	require.ErrorIs(t, err, session.ErrPooler)
	require.Equal(t, sqlstate.DuplicateStatement, sqlstate.Of(err))
}
