package advisory_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// The lock table of a server is for all of its sessions. Ten processes that hold as many locks as they may by default leave room for a
// statement of another program that needs hundreds.
func TestTheDefaultMaxLocksLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	program, other := pgtest.Connect(t, server.DSN("")), pgtest.Connect(t, server.DSN(""))
	_, err := program.Exec(t.Context(), "CREATE TABLE event (at int) PARTITION BY LIST (at)")
	require.NoError(t, err)
	for i := range 300 {
		_, err = program.Exec(t.Context(), fmt.Sprintf("CREATE TABLE event_%d PARTITION OF event FOR VALUES IN (%d)", i, i))
		require.NoError(t, err)
	}
	const statement = "SELECT count(*) FROM event"

	for process := range 10 {
		l := open(t, advisory.Config{DSN: server.DSN(""), LocksPerConn: 1000, MaxConns: 2})
		most := l.Stats().MaxLocks
		require.GreaterOrEqual(t, most, 100)
		for i := range most {
			_, err := l.TryAcquire(t.Context(), agents.ID(int64(process*100_000+i)))
			require.NoError(t, err)
		}
		_, err := l.TryAcquire(t.Context(), agents.ID(int64(process*100_000+most)))
		require.ErrorIs(t, err, advisory.ErrLockTableFull)
	}
	_, err = program.Exec(t.Context(), statement)
	require.NoError(t, err)

	// The control: a lock table can be too full for the statement.
	for i := 0; err == nil; i += 100 {
		_, err = other.Exec(t.Context(), "SELECT pg_advisory_lock(99, i) FROM generate_series($1::int, $1::int + 99) AS i", i)
	}
	var full *pgconn.PgError
	require.ErrorAs(t, err, &full)
	require.Equal(t, "53200", full.Code)
	_, err = program.Exec(t.Context(), statement)
	require.ErrorAs(t, err, &full)
	require.Equal(t, "53200", full.Code)
}
