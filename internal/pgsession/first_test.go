package pgsession

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A session sets statement_timeout and the like itself, but what it does before runs under the role's.
func TestARolesTimeoutsDoNotReachTheFirstStatements(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := connect(t, server.DSN(""))
	admin.exec("CREATE ROLE app LOGIN; ALTER ROLE app SET statement_timeout = '1ms'; ALTER ROLE app SET lock_timeout = '1ms'; ALTER ROLE app SET idle_in_transaction_session_timeout = '1ms'")
	dsn := pgtest.As(t, server.DSN(""), "app")
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	slow := connect(t, server.DSN(""))
	slow.exec("BEGIN; LOCK TABLE pg_catalog.pg_language IN ACCESS EXCLUSIVE MODE")
	_, err = connect(t, dsn).try("SELECT count(*) FROM pg_catalog.pg_language")
	require.Error(t, err, "the control: the role's settings end an ordinary statement")

	d := NewDialer(Config{ConnConfig: cc, T: time.Minute, ApplicationName: "first"})
	dialed := make(chan error, 1)
	go func() {
		s, err := d.Dial(t.Context())
		if err == nil {
			s.Close(false)
		}
		dialed <- err
	}()
	awaiting.Until(t, patience, func() bool {
		if len(dialed) > 0 {
			return true
		}
		return admin.exec("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'")[0] == "1"
	})
	slow.exec("COMMIT")
	require.NoError(t, <-dialed)

	for range 10 { // each on a cold server process
		conn, err := d.Connect(t.Context())
		require.NoError(t, err)
		_, err = d.probePooler(t.Context(), conn.PgConn())
		require.NoError(t, err, "the role's settings are no pooler")
		Disconnect(conn)
	}
	settings := admin.exec("SELECT setconfig::text FROM pg_catalog.pg_db_role_setting WHERE setrole = 'app'::regrole")[0]
	assert.Contains(t, settings, "statement_timeout=1ms", "what others get stays as it was")
}

// With these a transaction begins when no other one that writes is under way.
func TestARolesDeferrableTransactionsDoNotHoldUpTheFirstStatements(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := connect(t, server.DSN(""))
	admin.exec("CREATE TABLE written (n int); CREATE ROLE app LOGIN; " +
		"ALTER ROLE app SET default_transaction_isolation = serializable; ALTER ROLE app SET default_transaction_read_only = on; ALTER ROLE app SET default_transaction_deferrable = on")
	dsn := pgtest.As(t, server.DSN(""), "app")
	writer := connect(t, server.DSN(""))
	writer.exec("BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO written VALUES (1)")
	victim, done := connect(t, dsn), make(chan struct{})
	go func() { _, _ = victim.try("SELECT 1"); close(done) }()
	awaiting.Until(t, patience, func() bool {
		return admin.exec("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SafeSnapshot' AND pid = " + format(victim.conn.PID()))[0] == "1"
	}, "the control: an ordinary client waits")
	p := newPool(t, dsn, nil)
	take(t, p, pairKey).Close(false)
	writer.exec("COMMIT")
	<-done
}

// A hot standby refuses serializable transactions, and says nothing of a standby then.
func TestAStandbyIsKnownWhateverTheRolesIsolationLevelIs(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	connect(t, primary.DSN("")).exec("CREATE ROLE app LOGIN; ALTER ROLE app SET default_transaction_isolation = serializable")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	_, err = connect(t, pgtest.As(t, standby.DSN(""), "app")).try("SELECT 1")
	require.ErrorContains(t, err, "serializable", "the control")
	_, err = openPool(t, pgtest.As(t, standby.DSN(""), "app"), nil)
	require.ErrorIs(t, err, session.ErrStandby)
}

func TestTheFirstStatementsLeaveNoSettingBehind(t *testing.T) {
	t.Parallel()
	b := connect(t, pgtest.DSN(t))
	const all = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE '%timeout' OR name LIKE '%isolation'"
	b.exec("SET statement_timeout = '7s'")
	before := b.exec(all)
	_, standby, err := identify(t.Context(), b.conn)
	require.NoError(t, err)
	assert.False(t, standby)
	assert.Equal(t, before, b.exec(all))
	assert.True(t, strings.Contains(before[0], "statement_timeout=7000"), before)
}

// A cancel request, or a role's timeout, can end the probe's transaction between its BEGIN and its answer. The next
// attempt meets a transaction that has failed.
func TestAFailedTransactionOfTheProbeIsNoPooler(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := connect(t, dsn), connect(t, dsn)
	_, err := b.try("BEGIN; SELECT 1/0")
	require.Error(t, err)
	shared, err := sharesSessions(t.Context(), a.conn, b.conn)
	require.Equal(t, sqlstate.FailedTransaction, sqlstate.Of(err))
	assert.False(t, shared)
	assert.NotErrorIs(t, err, session.ErrPooler)
	assert.True(t, hurried(err), "it is tried again")
	b.exec("ROLLBACK; SELECT 1")
	shared, err = sharesSessions(t.Context(), a.conn, b.conn)
	require.NoError(t, err)
	assert.False(t, shared)
}

// Another client of a pooler can leave a failed transaction behind.
func TestABatchInAFailedTransactionIsResolved(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := take(t, newPool(t, dsn, nil), pairKey), connect(t, dsn)
	_, err := s.link.conn.Exec(t.Context(), "BEGIN; SELECT 1/0").ReadAll()
	require.Error(t, err)
	unlock, other := &session.Op{Tag: pairKey, Unlock: true}, try(singleKey, session.Exclusive)
	require.NoError(t, s.Run(unlock, other))
	require.NoError(t, unlock.Err)
	assert.False(t, judge.holds(s.PID(), pairKey))
	require.Equal(t, sqlstate.FailedTransaction, sqlstate.Of(other.Err))
	assert.False(t, other.Held)
	run(t, s, other)
	assert.True(t, judge.holds(s.PID(), singleKey), "the session goes on")
}
