package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// The role's settings apply until a connection has set its own.
func TestALockerWorksForARoleWhoseTimeoutsEndEverything(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		admin := dbtest.Pool(t, server.DSN(""))
		_, err := admin.Exec(t.Context(), `CREATE ROLE app LOGIN; ALTER ROLE app SET statement_timeout = '1ms'; ALTER ROLE app SET lock_timeout = '1ms';
			ALTER ROLE app SET default_transaction_isolation = serializable; ALTER ROLE app SET default_transaction_read_only = on; ALTER ROLE app SET default_transaction_deferrable = on`)
		require.NoError(t, err)
		app := pgtest.As(t, server.DSN(""), "app")
		_, err = dbtest.Pool(t, app).Exec(t.Context(), "SELECT pg_sleep(1)")
		// Not its text: a timeout that ends in the moment in which its statement does cancels the next
		// one, whose error then names a user's request.
		require.Equal(t, sqlstate.QueryCanceled, sqlstate.Of(err), "the control: %v", err)

		l := open(t, advisory.Config{DSN: app, Wait: time.Minute})
		held := make([]*advisory.Lock, 4) // of several connections
		for i := range held {
			held[i], err = l.Acquire(t.Context(), agents.ID(int64(i)))
			require.NoError(t, err)
		}
		other, waited := open(t, advisory.Config{DSN: app, Wait: time.Minute}), make(chan error, 1)
		go func() {
			waited <- other.Do(t.Context(), agents.ID(0), func(ctx context.Context) error { return ctx.Err() })
		}()
		eventually(t, func() bool { return locks(t, admin, false) == 1 })
		for _, lock := range held {
			assert.NoError(t, lock.Release())
		}
		require.NoError(t, <-waited)
	})
}
