package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// BenchmarkIdle measures the idle cost of a leader and of a follower, with the default times,
// over half a minute.
func BenchmarkIdle(b *testing.B) {
	for _, role := range []string{"leader", "follower"} {
		b.Run(role, func(b *testing.B) {
			for b.Loop() {
				idle(b, role)
			}
		})
	}
}

const idleTime = 30 * time.Second

func idle(b *testing.B, role string) {
	b.Helper()
	server := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{"log_statement": "all"}})
	dsn := server.DSN("")
	conn := pgtest.Connect(b, dsn)
	granted := "granted"
	if role == "follower" {
		startLeader(b, leaderConfig{Target: dsn})
		granted = "NOT granted"
	}
	n := newNode(b, dsn, 0)
	if role == "leader" {
		<-n.acquired
	} else {
		awaitWaiter(b, conn)
	}
	var pid int
	require.NoError(b, conn.QueryRow(context.Background(), fmt.Sprintf(`SELECT pid FROM pg_locks WHERE locktype = 'advisory'
		AND classid = 7 AND objid = 100 AND objsubid = 2 AND %s`, granted)).Scan(&pid))
	backend := backendCPU(b, pid)
	reportIdle(b, server, fmt.Sprintf("[%d]", pid))
	b.ReportMetric(float64(backendCPU(b, pid)-backend)/float64(time.Millisecond)*perMinute, "server-cpu-ms/min")
	b.ReportMetric(0, "ns/op")
	n.stop(b)
}

// BenchmarkIdleAnswers measures the cost of being ready to answer questions, for ten Lockers
// with a lock each, while no questions come.
func BenchmarkIdleAnswers(b *testing.B) {
	for _, off := range []bool{true, false} {
		b.Run(fmt.Sprintf("off=%t", off), func(b *testing.B) {
			for b.Loop() {
				idleAnswers(b, off)
			}
		})
	}
}

func idleAnswers(b *testing.B, off bool) {
	b.Helper()
	server := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{"log_statement": "all"}})
	dsn := server.DSN("")
	for i := range 10 {
		locker, err := advisory.Open(b.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{Off: off}})
		require.NoError(b, err)
		b.Cleanup(locker.Close)
		_, err = locker.Acquire(b.Context(), namespace.Pair(7, int32(i)))
		require.NoError(b, err)
	}
	conn := pgtest.Connect(b, dsn)
	var listeners int
	for listeners == 0 && !off {
		require.NoError(b, conn.QueryRow(b.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE application_name LIKE 'pglatch answers: %' AND state = 'idle' AND query !~ 'set_config'`).Scan(&listeners))
	}
	var sessions int
	require.NoError(b, conn.QueryRow(b.Context(), `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&sessions))
	reportIdle(b, server, "")
	b.ReportMetric(float64(sessions), "sessions")
	b.ReportMetric(0, "ns/op")
}

// perMinute turns what happened in idleTime into what happens in a minute.
const perMinute = float64(time.Minute) / float64(idleTime)

// reportIdle reports what this process costs during idleTime, and how many statements come to a
// server whose lines in the log contain a text.
func reportIdle(b *testing.B, server *pgserver.Server, of string) {
	b.Helper()
	client := cpu(b)
	b.ReportMetric(idleStatements(b, server, of), "statements/min")
	b.ReportMetric(float64(cpu(b)-client)/float64(time.Millisecond)*perMinute, "client-cpu-ms/min")
}

// idleStatements waits for idleTime, and counts the statements in the server's log meanwhile.
func idleStatements(b *testing.B, server *pgserver.Server, of string) (aMinute float64) {
	b.Helper()
	began, err := server.LogOffset()
	require.NoError(b, err)
	<-time.After(idleTime)
	log, err := server.LogSince(began)
	require.NoError(b, err)
	for line := range strings.Lines(log) {
		if strings.Contains(line, of) && (strings.Contains(line, "LOG:  statement:") || strings.Contains(line, "LOG:  execute ")) {
			aMinute += perMinute
		}
	}
	return aMinute
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	used, err := gauge.OwnProcessor()
	require.NoError(b, err)
	return used
}

func backendCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	used, err := gauge.Processors(pid)
	require.NoError(b, err)
	return used
}
