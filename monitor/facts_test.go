package monitor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
)

func TestALockTableThatFillsNamesWhoFillsIt(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20", "max_prepared_transactions": "0", "autovacuum": "off"}})
	dsn := server.DSN("postgres")
	hoarder := clitest.Connect(t, dsn, "hoarder")
	run(t, hoarder, "SELECT pg_advisory_lock(5, n) FROM generate_series(1, 170) AS n")
	run(t, clitest.Connect(t, dsn, "modest"), "SELECT pg_advisory_lock(6, 1)")
	m := open(t, monitor.Config{DSN: dsn})
	var full monitor.Verdict
	await.Until(t, patience, func() bool {
		all, err := m.Verdicts(t.Context())
		require.NoError(t, err)
		for _, v := range all {
			if v.Name == "lock-table" {
				full = v
			}
		}
		return full.Name != ""
	})
	require.GreaterOrEqual(t, len(full.Evidence), 3, full)
	require.Equal(t, fmt.Sprintf("hoarder has 170 of them: session %d of database postgres", pid(hoarder)), full.Evidence[1])
	require.True(t, strings.HasPrefix(full.Evidence[2], "modest has 1 of them"))
}
