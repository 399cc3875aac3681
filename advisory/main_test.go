package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

// inBothModes runs a test in both modes.
func inBothModes(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	lockmode.Run(t, test)
}

// open opens a Locker of the test's mode, unless the config names one.
func open(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	if config.LocksPerConn == 0 {
		config = lockmode.Of(t).Config(config)
	}
	return openAs(t, config)
}

// openAs opens a Locker of the config's mode. On a busy machine, the first statements can take longer than a short
// SessionTTL of a test allows. So openAs tries for a while.
func openAs(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	var l *advisory.Locker
	var err error
	await.Until(t, await.Soon, func() bool {
		l, err = advisory.Open(t.Context(), config)
		return !errors.Is(err, advisory.ErrUnavailable)
	}, func() string { return fmt.Sprintf("%v", err) })
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// locks counts the rows of pg_locks for advisory locks of the database.
func locks(t *testing.T, pool *pgxpool.Pool, granted bool) int {
	t.Helper()
	var n int
	err := pool.QueryRow(context.Background(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = $1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, granted).Scan(&n)
	require.NoError(t, err)
	return n
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	await.Until(t, await.Soon, condition)
}

// pidOf returns the backend that holds the Locker's only lock.
func pidOf(t *testing.T, l *advisory.Locker) uint32 {
	t.Helper()
	for held := range l.Held() {
		return held.PID
	}
	require.Fail(t, "nothing is held")
	return 0
}

func TestMain(m *testing.M) {
	if what := os.Getenv(crossing); what != "" {
		if err := cross(context.Background(), what); err != nil {
			var deadlock *advisory.DeadlockError
			if !errors.As(err, &deadlock) {
				deadlock = &advisory.DeadlockError{}
			}
			fmt.Println("failed:", err, "names:", deadlock.Cycle)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(tabletrace.Main(func() int { return pgtest.Run(m) }))
}
