package monitor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
)

func TestFiftyViewersShareOneQuery(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	lock(t, clitest.Connect(t, dsn, ""), agents.ID(1))
	m := open(t, monitor.Config{DSN: dsn, MinInterval: time.Hour})
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			s, err := m.Snapshot(t.Context())
			if assert.NoError(t, err) && assert.Len(t, s.Locks, 1) {
				s.Locks[0] = monitor.Lock{} // a viewer's slice is its own
			}
		})
	}
	viewers.Wait()
	assert.Equal(t, monitor.Stats{Queries: 1}, m.Stats())
	assert.Equal(t, "agent/1", snapshot(t, m).Locks[0].Key.Text)
	assert.Equal(t, monitor.Stats{Queries: 1}, m.Stats())
}

func TestAfterTheMinimumIntervalTheServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: pgtest.DSN(t), MinInterval: 1})
	first, second := snapshot(t, m), snapshot(t, m)
	assert.True(t, second.Server.Now.After(first.Server.Now))
	assert.Equal(t, monitor.Stats{Queries: 2}, m.Stats())
}

func TestAFailureIsSharedLikeAnAnswer(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: "postgres://localhost:1/none", MinInterval: time.Hour})
	_, first := m.Snapshot(t.Context())
	_, second := m.Snapshot(t.Context())
	require.Error(t, first)
	assert.Equal(t, first, second)
	assert.Equal(t, monitor.Stats{Queries: 1}, m.Stats())
}

// silence is a server that takes connections and says nothing.
type silence struct {
	net.Listener
	accepted chan struct{} // one for each connection
}

func newSilence(t *testing.T) *silence {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &silence{l, make(chan struct{}, 100)}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() })
			s.accepted <- struct{}{}
		}
	})
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	return s
}

func (s *silence) dsn() string {
	return "postgres://u:s3cret@" + s.Addr().String() + "/d?sslmode=disable"
}

func TestAViewerWhoLeavesEndsOnlyItsOwnWait(t *testing.T) {
	t.Parallel()
	server := newSilence(t)
	m := open(t, monitor.Config{DSN: server.dsn()})
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(t.Context())
	stays := make(chan error, 1)
	go func() {
		_, err := m.Snapshot(t.Context())
		stays <- err
	}()
	<-server.accepted
	leave(gone)
	_, err := m.Snapshot(ctx)
	require.ErrorIs(t, err, gone)

	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
	defer cancel()
	_, err = m.Snapshot(ctx)
	require.ErrorIs(t, err, gone, "also in the middle of a wait")

	select {
	case err := <-stays:
		require.Fail(t, "the other viewer's wait ended", "%v", err)
	default:
	}
	m.Close()
	require.ErrorIs(t, <-stays, monitor.ErrClosed)
	assert.Equal(t, monitor.Stats{Queries: 1}, m.Stats())
}

func TestASilentServerIsAnErrorAfterABoundedTime(t *testing.T) {
	t.Parallel()
	server := newSilence(t)
	_, err := open(t, monitor.Config{DSN: server.dsn()}).Snapshot(t.Context())
	require.ErrorContains(t, err, "did not answer within 5s")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestCloseEndsEverythingAndMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	snapshot(t, m)
	look := clitest.Connect(t, dsn, "")
	require.Equal(t, 1, sessions(t, look))
	m.Close()
	m.Close()
	await.Until(t, patience, func() bool { return sessions(t, look) == 0 })
	_, err := m.Snapshot(t.Context())
	require.ErrorIs(t, err, monitor.ErrClosed)
}

func TestARestartOfTheServerIsOutlived(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	var log capture.Text
	m := open(t, monitor.Config{DSN: server.DSN(""), Logger: log.Logger()})
	snapshot(t, m)

	require.NoError(t, server.Restart(t.Context(), pgserver.Fast))
	lock(t, clitest.Connect(t, server.DSN(""), ""), agents.ID(1))
	assert.Len(t, snapshot(t, m).Locks, 1, "at once, on a new connection")
	assert.Empty(t, log.String())

	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	for range 3 {
		_, err := m.Snapshot(t.Context())
		require.Error(t, err)
	}
	require.NoError(t, server.Start(t.Context()))
	assert.Empty(t, snapshot(t, m).Locks)
	assert.Equal(t, 1, strings.Count(log.String(), "lock_snapshot_failed"), log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "lock_snapshot_recovered"), log.String())
}

func TestAStatementThatTheServerStopsLeavesTheConnectionUsable(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := clitest.Connect(t, server.DSN(""), "")
	m := open(t, monitor.Config{DSN: server.DSN("")})
	snapshot(t, m)
	var before, after uint32
	const own = `SELECT pid FROM pg_stat_get_activity(NULL) WHERE application_name = 'pglatch-monitor'`
	require.NoError(t, admin.QueryRow(t.Context(), own).Scan(&before))

	run(t, admin, `BEGIN`)
	run(t, admin, `LOCK TABLE pg_catalog.pg_database IN ACCESS EXCLUSIVE MODE`)
	_, err := m.Snapshot(t.Context())
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "55P03", refused.Code, "lock_timeout")
	run(t, admin, `ROLLBACK`)

	snapshot(t, m)
	require.NoError(t, admin.QueryRow(t.Context(), own).Scan(&after))
	assert.Equal(t, before, after)
}

func TestABadConfigIsRefusedWithItsRemedyAndWithoutAPassword(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]monitor.Config{
		"DSN is empty: set it to":              {},
		"DSN is set beside ConnConfig":         {DSN: "host=x", ConnConfig: &pgx.ConnConfig{}},
		"ConnConfig is not made by":            {ConnConfig: &pgx.ConnConfig{}},
		"MinInterval is -1ns: use a positive":  {DSN: "host=x", MinInterval: -1},
		"DSN is invalid: a / before the @":     {DSN: "postgres://u:s3cret/x@host/d"},
		"a percent sign in a password is %25":  {DSN: "postgres://u:s3cret%zz@host:port/d"},
		"the text is withheld":                 {DSN: "host=x password='s3cret"},
		"DSN is invalid: a port that is not a": {DSN: "postgres://u:s3cret@host:99999999/d"},
	} {
		_, err := monitor.Open(config)
		var bad *monitor.ConfigError
		require.ErrorAs(t, err, &bad, want)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestErrorsOfTheConnectionHoldNoPassword(t *testing.T) {
	t.Parallel()
	var log capture.Text
	m := open(t, monitor.Config{DSN: "postgres://u:s3cret@127.0.0.1:1/d", Logger: log.Logger()})
	_, err := m.Snapshot(t.Context())
	require.ErrorContains(t, err, "monitor: read pg_locks: ")
	assert.NotContains(t, err.Error(), "s3cret")
	assert.Contains(t, log.String(), "lock_snapshot_failed")
	assert.NotContains(t, log.String(), "s3cret")
}

func TestTheCallersConnConfigIsNotChanged(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig("host=127.0.0.1 port=1 application_name=mine")
	require.NoError(t, err)
	open(t, monitor.Config{ConnConfig: cc})
	assert.Equal(t, "mine", cc.RuntimeParams["application_name"])
	assert.Equal(t, pgx.QueryExecModeCacheStatement, cc.DefaultQueryExecMode)
}
