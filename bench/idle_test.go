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

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtest"
)

// BenchmarkIdle measures what a leader and a follower cost while nothing happens,
// with the default times, over half a minute.
func BenchmarkIdle(b *testing.B) {
	for _, role := range []string{"leader", "follower"} {
		b.Run(role, func(b *testing.B) {
			for b.Loop() {
				idle(b, role)
			}
		})
	}
}

const (
	// A session's statistics are flushed with a statement: those of the election's
	// begin with the first renewal, after 5 s.
	settleTime = 7 * time.Second
	idleTime   = 30 * time.Second
)

func idle(b *testing.B, role string) {
	b.Helper()
	dsn := pgtest.DSN(b)
	conn := connect(b, dsn)
	granted := "granted"
	if role == "follower" {
		startLeader(b, dsn)
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
	<-time.After(settleTime)
	client, server, statements := cpu(b), backendCPU(b, pid), transactions(b, conn)
	<-time.After(idleTime)
	perMinute := float64(time.Minute) / float64(idleTime)
	b.ReportMetric(float64(transactions(b, conn)-statements)*perMinute, "statements/min")
	b.ReportMetric(float64(cpu(b)-client)/float64(time.Millisecond)*perMinute, "client-cpu-ms/min")
	b.ReportMetric(float64(backendCPU(b, pid)-server)/float64(time.Millisecond)*perMinute, "server-cpu-ms/min")
	b.ReportMetric(0, "ns/op")
	n.stop(b)
}

// transactions counts those of the database; each statement of the election is
// one. The questions asked here are a few more.
func transactions(b *testing.B, conn *pgx.Conn) (n int64) {
	b.Helper()
	require.NoError(b, conn.QueryRow(context.Background(),
		"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
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
