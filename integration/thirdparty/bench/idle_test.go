package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
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
	began, err := server.LogOffset()
	require.NoError(b, err)
	client, backend := cpu(b), backendCPU(b, pid)
	<-time.After(idleTime)
	perMinute := float64(time.Minute) / float64(idleTime)
	log, err := server.LogSince(began)
	require.NoError(b, err)
	b.ReportMetric(float64(statements(log, pid))*perMinute, "statements/min")
	b.ReportMetric(float64(cpu(b)-client)/float64(time.Millisecond)*perMinute, "client-cpu-ms/min")
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
	began, err := server.LogOffset()
	require.NoError(b, err)
	client := cpu(b)
	<-time.After(idleTime)
	perMinute := float64(time.Minute) / float64(idleTime)
	log, err := server.LogSince(began)
	require.NoError(b, err)
	b.ReportMetric(float64(strings.Count(log, "LOG:  statement:")+strings.Count(log, "LOG:  execute "))*perMinute, "statements/min")
	b.ReportMetric(float64(cpu(b)-client)/float64(time.Millisecond)*perMinute, "client-cpu-ms/min")
	b.ReportMetric(float64(sessions), "sessions")
	b.ReportMetric(0, "ns/op")
}

// statements counts, in the server's log, the statements that a backend received.
func statements(log string, pid int) (n int) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, fmt.Sprintf("[%d]", pid)) && (strings.Contains(line, "LOG:  statement:") || strings.Contains(line, "LOG:  execute ")) {
			n++
		}
	}
	return n
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// backendCPU reads user and system time of a process on this machine, in ticks of
// 10 ms: proc(5), stat, fields 14 and 15.
func backendCPU(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
