package monitor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
)

// A stopped source stops the answers of its process: those of one database have one goroutine.
type stopped struct{ called, resume chan struct{} }

func (s stopped) Connected() bool { return true }

func (s stopped) Answer(introspect.Question, *introspect.Answer) {
	select {
	case s.called <- struct{}{}:
	default:
	}
	<-s.resume
}

func (s stopped) Request(introspect.Request) []introspect.Reply { return nil }

// stopAnswers makes this process one that does not answer until the test ends.
func stopAnswers(t *testing.T, dsn string, m *monitor.Monitor) {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	s := stopped{make(chan struct{}, 1), make(chan struct{})}
	member := introspect.Join(introspect.Member{Conn: cc, Source: s})
	t.Cleanup(func() {
		close(s.resume)
		member.Leave()
	})
	await.Until(t, patience, func() bool {
		snapshot(t, m) // which asks
		return len(s.called) > 0
	})
}

func TestALockThatWasTakenJustBeforeAStopIsThatOfASilentHolder(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		l := locker(t, dsn, "stock")
		acquire(t, l, agents.ID(1))
		until(t, m, toldBy(monitor.SourceProcess))
		stopAnswers(t, dsn, m)
		acquire(t, l, agents.ID(2)) // of which it told nobody
		lock(t, clitest.Connect(t, dsn, "psql"), agents.ID(3))

		s := until(t, m, func(s monitor.Snapshot) bool { return len(s.Locks) == 3 && s.Locks[1].Silent })
		assert.True(t, s.Locks[0].Silent)
		assert.False(t, s.Locks[2].Silent, "control: of another program")

		var verdict monitor.Verdict
		await.Until(t, patience, func() bool {
			all, err := m.Verdicts(t.Context())
			require.NoError(t, err)
			i := slices.IndexFunc(all, func(v monitor.Verdict) bool { return v.Name == "holder-silent" })
			if i >= 0 {
				verdict = all[i]
			}
			return i >= 0
		})
		evidence := strings.Join(verdict.Evidence, "\n")
		assert.Contains(t, evidence, "it holds agent/1")
		assert.Contains(t, evidence, "it holds agent/2")
		assert.NotContains(t, evidence, "agent/3")
	})
}

func TestALockOfAnIdleSessionIsAtLeastAsOldAsItsLastStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "psql")
	lock(t, conn, agents.ID(1))
	look := clitest.Connect(t, dsn, "look")
	await.Until(t, patience, func() bool {
		var idle float64
		err := look.QueryRow(t.Context(), `SELECT extract(epoch FROM clock_timestamp() - state_change)::float8 FROM pg_stat_activity WHERE pid = $1`, pid(conn)).Scan(&idle)
		return err == nil && idle > 1
	})
	s := snapshot(t, open(t, monitor.Config{DSN: dsn}))
	require.Len(t, s.Locks, 1)
	assert.Equal(t, monitor.SourceFirstSeen, s.Locks[0].HeldSince.Source)
	assert.GreaterOrEqual(t, s.Locks[0].Duration, 1.0, "of a first look")
}
