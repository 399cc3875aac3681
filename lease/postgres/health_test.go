package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
)

func TestAStoreIsWellOnlyIfItsServerTakesWrites(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	unmade := open(t, dsn, nil)
	require.ErrorIs(t, unmade.Health(t.Context()), lease.ErrNotReady, "there is no schema")
	s := newStore(t, dsn)
	require.NoError(t, s.Health(t.Context()), "nothing is known of the name")
	acquire(t, s, "readyz", "h")
	require.NoError(t, s.Health(t.Context()), "nor does it matter")
	j := newJudge(t, dsn)
	j.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	readOnly := open(t, dsn, nil)
	_, err := readOnly.Get(t.Context(), "readyz")
	require.NoError(t, err, "reading says nothing of it")
	err = readOnly.Health(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "target_session_attrs=read-write")
	readOnly.Close()
	require.ErrorIs(t, readOnly.Health(t.Context()), lease.ErrClosed)
}
