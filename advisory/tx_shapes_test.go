package advisory_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
)

// What programs and libraries wrap around pools and transactions.
type (
	wrappedDB   struct{ *sql.DB }
	wrappedConn struct{ *sql.Conn }
	wrappedTx   struct{ *sql.Tx }
	wrappedPool struct{ *pgxpool.Pool }
	wrappedPgx  struct{ pgx.Tx }
)

// connections are all ways to a database.
type connections struct {
	*testing.T
	locker *advisory.Locker
	pool   *pgxpool.Pool
	db     *sql.DB
}

func (c connections) pgxConn() *pgx.Conn { return c.poolConn().Conn() }

func (c connections) poolConn() *pgxpool.Conn {
	c.Helper()
	conn, err := c.pool.Acquire(c.Context())
	require.NoError(c, err)
	c.Cleanup(conn.Release)
	return conn
}

func (c connections) sqlConn() *sql.Conn {
	c.Helper()
	conn, err := c.db.Conn(c.Context())
	require.NoError(c, err)
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c connections) sqlTx() *sql.Tx {
	c.Helper()
	tx, err := c.db.BeginTx(c.Context(), nil)
	require.NoError(c, err)
	c.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (c connections) pgxTx() pgx.Tx {
	c.Helper()
	tx, err := c.pool.Begin(c.Context())
	require.NoError(c, err)
	c.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(c.Context())) })
	return tx
}

// acquire takes the lock on agent 1 with what has the methods of a transaction.
func (c connections) acquire(tx any) error {
	c.Helper()
	if tx, ok := tx.(advisory.PgxTx); ok {
		return advisory.LockTx(c.Context(), tx, agents.ID(1))
	}
	return advisory.LockSQLTx(c.Context(), tx.(advisory.SQLTx), agents.ID(1))
}

// exec sends a statement with it.
func (c connections) exec(tx any, statement string) (err error) {
	if tx, ok := tx.(advisory.PgxTx); ok {
		_, err = tx.Exec(c.Context(), statement)
		return err
	}
	_, err = tx.(advisory.SQLTx).ExecContext(c.Context(), statement)
	return err
}

// withConnections runs a test in both modes and with each protocol.
func withConnections(t *testing.T, test func(c connections)) {
	t.Helper()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				u, err := url.Parse(dsn)
				require.NoError(t, err)
				q := u.Query()
				q.Set("default_query_exec_mode", map[pgx.QueryExecMode]string{
					pgx.QueryExecModeCacheStatement: "cache_statement", pgx.QueryExecModeExec: "exec", pgx.QueryExecModeSimpleProtocol: "simple_protocol",
				}[mode])
				u.RawQuery = q.Encode()
				db, err := sql.Open("pgx", u.String())
				require.NoError(t, err)
				t.Cleanup(func() { _ = db.Close() })
				test(connections{t, open(t, advisory.Config{DSN: dsn}), workPool(t, u.String()), db})
			})
		}
	})
}

// shapes are what has the methods of a transaction and is none.
var shapes = map[string]func(c connections) any{
	"*pgxpool.Pool":         func(c connections) any { return c.pool },
	"struct{*pgxpool.Pool}": func(c connections) any { return wrappedPool{c.pool} },
	"*pgxpool.Conn":         func(c connections) any { return c.poolConn() },
	"*pgx.Conn":             func(c connections) any { return c.pgxConn() },
	"*sql.DB":               func(c connections) any { return c.db },
	"struct{*sql.DB}":       func(c connections) any { return wrappedDB{c.db} },
	"*sql.Conn":             func(c connections) any { return c.sqlConn() },
	"struct{*sql.Conn}":     func(c connections) any { return wrappedConn{c.sqlConn()} },
	"a pgx.Tx that sent COMMIT": func(c connections) any {
		tx := c.pgxTx()
		require.NoError(c, c.exec(tx, "COMMIT"))
		return tx
	},
	"a *sql.Tx that sent COMMIT": func(c connections) any {
		tx := c.sqlTx()
		require.NoError(c, c.exec(tx, "COMMIT"))
		return tx
	},
}

func TestWhatIsNotInATransactionTakesNoLock(t *testing.T) {
	t.Parallel()
	withConnections(t, func(c connections) {
		for name, shape := range shapes {
			c.Run(name, func(t *testing.T) {
				c := c
				c.T = t
				require.ErrorIs(t, c.acquire(shape(c)), advisory.ErrNoTransaction)
				require.Zero(t, locks(t, c.pool, true))
				lock, err := c.locker.TryAcquire(t.Context(), agents.ID(1))
				require.NoError(t, err)
				require.ErrorIs(t, c.acquire(shape(c)), advisory.ErrNoTransaction, "at once, though somebody holds the lock")
				require.NoError(t, lock.Release())
			})
		}
	})
}

func TestWhatIsInATransactionTakesTheLock(t *testing.T) {
	t.Parallel()
	begun := func(c connections, conn any) any {
		require.NoError(c, c.exec(conn, "BEGIN"))
		return conn
	}
	withConnections(t, func(c connections) {
		for name, transaction := range map[string]func(c connections) any{
			"pgx.Tx":            func(c connections) any { return c.pgxTx() },
			"struct{pgx.Tx}":    func(c connections) any { return wrappedPgx{c.pgxTx()} },
			"*sql.Tx":           func(c connections) any { return c.sqlTx() },
			"struct{*sql.Tx}":   func(c connections) any { return wrappedTx{c.sqlTx()} },
			"BEGIN on sql.Conn": func(c connections) any { return begun(c, c.sqlConn()) },
			"BEGIN on pgx.Conn": func(c connections) any { return begun(c, c.pgxConn()) },
			"a savepoint": func(c connections) any {
				tx, err := c.pgxTx().Begin(c.Context())
				require.NoError(c, err)
				return tx
			},
			"a read-only transaction": func(c connections) any {
				tx := c.sqlTx()
				require.NoError(c, c.exec(tx, "SET TRANSACTION READ ONLY"))
				return tx
			},
		} {
			c.Run(name, func(t *testing.T) {
				c := c
				c.T = t
				tx := transaction(c)
				require.NoError(t, c.acquire(tx))
				_, err := c.locker.TryAcquire(t.Context(), agents.ID(1))
				require.ErrorIs(t, err, advisory.ErrHeld)
				require.NoError(t, c.exec(tx, "ROLLBACK"))
				require.Zero(t, locks(t, c.pool, true))
			})
		}
	})
}

func TestAnAbortedTransactionTakesNoLockAndSaysSo(t *testing.T) {
	t.Parallel()
	withConnections(t, func(c connections) {
		for name, tx := range map[string]any{"pgx": c.pgxTx(), "sql": c.sqlTx()} {
			require.Error(c, c.exec(tx, "SELECT 1/0"), name)
			err := c.acquire(tx)
			require.NotErrorIs(c, err, advisory.ErrNoTransaction, name)
			require.ErrorContains(c, err, "25P02", name)
			require.ErrorContains(c, err, "transaction is aborted", name)
			require.Zero(c, locks(c.T, c.pool, true))
		}
	})
}
