package pgsession

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// txWaiting is a transaction that waits for what somebody else holds.
func txWaiting(t *testing.T) *sql.Tx {
	t.Helper()
	dsn := pgtest.DSN(t)
	connect(t, dsn).exec("SELECT pg_advisory_lock(7, 9)")
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A wait for a key can be several. lock_timeout is for all of them.
func TestALockTimeoutThatIsUsedUpEndsAWait(t *testing.T) {
	t.Parallel()
	tx := txWaiting(t)
	_, err := tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '1h'")
	require.NoError(t, err)
	for waited, want := range map[time.Duration]TxWaited{0: {}, time.Hour: {LockTimeout: "1h"}} {
		end, err := TxWait(t.Context(), FromSQL(tx), pairKey, session.Exclusive, 200*time.Millisecond, waited)
		require.NoError(t, err)
		assert.Equal(t, want, end)
	}
}

// An endingTx ends a context before a statement.
type endingTx struct {
	Tx
	before string
	end    context.CancelFunc
}

func (e endingTx) Exec(ctx context.Context, sql string, args ...any) error {
	if sql == e.before {
		e.end()
	}
	return e.Tx.Exec(ctx, sql, args...)
}

func TestSettingsAreGivenBackThoughTheContextHasEnded(t *testing.T) {
	t.Parallel()
	tx := txWaiting(t)
	show := func() (settings string) {
		t.Helper()
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('client_connection_check_interval'))").Scan(&settings))
		return settings
	}
	_, err := tx.ExecContext(t.Context(), "SET LOCAL statement_timeout = '1234ms'")
	require.NoError(t, err)
	before := show()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = TxWait(ctx, endingTx{FromSQL(tx), txWaitSQL, cancel}, pairKey, session.Exclusive, time.Minute, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, show())

	// The control: the wait's own settings, with nobody to give them back.
	require.NoError(t, FromSQL(tx).Exec(t.Context(), txWaitRequestSQL, "", "", "", "", "", "", ""))
	require.NotEqual(t, before, show())
	restore(ctx, FromSQL(tx))
	require.Equal(t, before, show())
}
