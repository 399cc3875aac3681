package monitor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
)

func TestWhoWaitsForWhomIsWhatPostgreSQLSays(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		dsn := pgtest.DSN(t)
		m := open(t, monitor.Config{DSN: dsn})
		functions := []string{"pg_advisory_lock", "pg_advisory_lock_shared"}
		holders := 1 + rand.IntN(2)
		for i := range holders {
			run(t, clitest.Connect(t, dsn, fmt.Sprint("holder", i)), lockSQL(functions[min(holders-1, 1)], agents.ID(42)))
		}
		for i := range 7 {
			function := functions[rand.IntN(2)]
			if i == 0 {
				function = functions[0] // so that all that follow wait
			}
			clitest.WaitFor(t, dsn, clitest.Connect(t, dsn, fmt.Sprint("waiter", i)), lockSQL(function, agents.ID(42)))
		}
		look := clitest.Connect(t, dsn, "look")

		s := snapshot(t, m)

		require.Len(t, s.Locks, holders+7)
		blocks := map[uint32][]uint32{}
		for _, l := range s.Locks {
			rows, err := look.Query(t.Context(), `SELECT DISTINCT unnest(pg_blocking_pids($1))`, int32(l.PID))
			require.NoError(t, err)
			want, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
			require.NoError(t, err)
			assert.ElementsMatch(t, want, l.BlockedBy, "round %d: %s %s", round, l.ApplicationName, l.Mode)
			for _, pid := range want {
				blocks[pid] = append(blocks[pid], l.PID)
			}
		}
		for _, l := range s.Locks {
			assert.ElementsMatch(t, blocks[l.PID], l.Blocks, "round %d: %s %s", round, l.ApplicationName, l.Mode)
			assert.False(t, slices.Contains(l.Blocks, l.PID))
		}
	}
}

func TestASessionThatHoldsALockAndWaitsForItDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	reader, upgrade := clitest.Connect(t, dsn, "reader"), clitest.Connect(t, dsn, "upgrade")
	shared := lockSQL("pg_advisory_lock_shared", agents.ID(42))
	run(t, reader, shared)
	run(t, upgrade, shared)
	wait(t, dsn, upgrade, agents.ID(42))

	s := snapshot(t, m)

	require.Len(t, s.Locks, 3)
	assert.Equal(t, []uint32{pid(reader)}, s.Locks[2].BlockedBy)
	for _, l := range s.Locks[:2] {
		if l.PID == pid(reader) {
			assert.Equal(t, []uint32{pid(upgrade)}, l.Blocks)
		} else {
			assert.Empty(t, l.Blocks)
		}
	}
}
