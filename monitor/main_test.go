package monitor_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	agents = namespace.Must(1, "agent")
	orders = namespace.Must(2, "order")
)

const patience = await.Soon

func names(t *testing.T) *namespace.Set {
	t.Helper()
	set, err := namespace.NewSet(agents, orders)
	require.NoError(t, err)
	return set
}

// open opens a Monitor whose every call asks the server, unless config says otherwise.
func open(t *testing.T, config monitor.Config) *monitor.Monitor {
	t.Helper()
	if config.MinInterval == 0 {
		config.MinInterval = 1
	}
	if config.Namespaces == nil {
		config.Namespaces = names(t)
	}
	m, err := monitor.Open(config)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func snapshot(t *testing.T, m *monitor.Monitor) monitor.Snapshot {
	t.Helper()
	s, err := m.Snapshot(t.Context())
	require.NoError(t, err)
	assert.Len(t, s.Locks, s.Total)
	return s
}

func pid(conn *pgx.Conn) uint32 { return conn.PgConn().PID() }

// lockSQL is "pg_advisory_lock(…)" or one of its sisters for a key.
func lockSQL(function string, k namespace.Key) string {
	if k1, k2, ok := k.Tag().Pair(); ok {
		return fmt.Sprintf("SELECT %s(%d, %d)", function, k1, k2)
	}
	single, _ := k.Tag().Single()
	return fmt.Sprintf("SELECT %s(%d)", function, single)
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func lock(t *testing.T, conn *pgx.Conn, k namespace.Key) {
	t.Helper()
	run(t, conn, lockSQL("pg_advisory_lock", k))
}

// wait makes conn wait for a lock and returns when it stands in the server's queue.
// The wait ends with the test.
func wait(t *testing.T, dsn string, conn *pgx.Conn, k namespace.Key) {
	t.Helper()
	clitest.WaitFor(t, dsn, conn, lockSQL("pg_advisory_lock", k))
}

// sessions counts the monitor's sessions in the database of look.
func sessions(t *testing.T, look *pgx.Conn) (n int) {
	t.Helper()
	require.NoError(t, look.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pglatch-monitor'`).Scan(&n))
	return n
}
