package pgsession

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/pglatch/pglatch/namespace"
)

const traps = `
CREATE ROLE app LOGIN;
ALTER ROLE app SET statement_timeout = '250ms';
ALTER ROLE app SET idle_session_timeout = '250ms';
ALTER ROLE app SET lock_timeout = '10ms';
ALTER ROLE app SET idle_in_transaction_session_timeout = '100ms';
ALTER ROLE app SET default_transaction_read_only = on;
ALTER ROLE app SET default_transaction_isolation = serializable;
ALTER ROLE app SET client_min_messages = debug1;
ALTER ROLE app SET standard_conforming_strings = off;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO app;
ALTER DATABASE postgres SET search_path = evil, pg_catalog;
CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 42';
CREATE FUNCTION evil.pg_advisory_lock(int, int) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION evil.pg_try_advisory_lock(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION evil.pg_try_advisory_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION evil.pg_advisory_unlock(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION evil.pg_advisory_unlock_all() RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION evil.set_config(text, text, bool) RETURNS text LANGUAGE sql AS 'SELECT $2';
CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$SELECT 'granted'::text$$;
CREATE FUNCTION evil.no(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR evil.= (FUNCTION = evil.no, LEFTARG = int, RIGHTARG = int);
`

func TestDefaultsOfRoleAndDatabaseChangeNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := connect(t, server.DSN(""))
	admin.exec(traps)
	if server.Installation().Major >= 17 {
		admin.exec("ALTER ROLE app SET transaction_timeout = '100ms'")
	}
	dsn := pgtest.As(t, server.DSN(""), "app")

	// The control: each trap catches an ordinary client, which has to be fast enough to meet them one by one.
	victim := func(sql string, codes ...string) (row []string, held string) {
		t.Helper()
		for range 100 {
			v := connect(t, dsn)
			row, err := v.try(sql)
			held = admin.locks(v.conn.PID())
			if err == nil && len(codes) == 0 || slices.Contains(codes, sqlstate.Of(err)) {
				return row, held
			}
		}
		require.Fail(t, "each time another timeout ended it", sql)
		return nil, ""
	}
	row, _ := victim("SELECT pg_backend_pid()")
	assert.Equal(t, "42", row[0])
	_, held := victim("SELECT pg_advisory_lock(7, 9)")
	assert.Equal(t, "0", held)
	victim("SELECT pg_sleep(30)", sqlstate.QueryCanceled, "25P04")
	_, err := connect(t, dsn).conn.ReceiveMessage(t.Context())
	assert.Equal(t, "57P05", sqlstate.Of(err))

	p := newPool(t, dsn, briefly)
	for _, tag := range []namespace.Tag{pairKey, singleKey} {
		for _, mode := range []session.Mode{session.Exclusive, session.Shared} {
			s, waiter := acquire(t, p), acquire(t, p)
			ok, err := s.Try(tag, mode)
			require.NoError(t, err)
			require.True(t, ok)
			assert.True(t, admin.holds(s.PID(), tag))
			lost := watch(s)
			start := time.Now()
			ok, err = waiter.Wait(tag, session.Exclusive, time.Second)
			require.NoError(t, err)
			require.False(t, ok)
			assert.Greater(t, time.Since(start), 800*time.Millisecond, "a default ended the wait")
			requireNoLoss(t, s, lost)
			require.NoError(t, s.Unlock(tag, mode))
			assert.Equal(t, "0", admin.locks(s.PID()))
			ok, err = waiter.Wait(tag, mode, time.Second)
			require.NoError(t, err)
			require.True(t, ok)
			_, ok, err = s.Holder(tag)
			require.NoError(t, err)
			require.True(t, ok)
			anyOf := &session.Op{Any: []namespace.Tag{namespace.SingleRaw(5).Tag()}}
			err = s.Run(anyOf)
			i := anyOf.Index
			require.NoError(t, err)
			require.Zero(t, i)
			assert.True(t, admin.holds(s.PID(), namespace.SingleRaw(5).Tag()))
			unlockAll(t, s)
			unlockAll(t, waiter)
			assert.Equal(t, "0", admin.locks(waiter.PID()))
			s.Close(true)
			waiter.Close(true)
		}
	}
}

func TestAWaitStepStaysBelowDeadlockTimeoutAndT(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	assert.Equal(t, 900*time.Millisecond, acquire(t, newPool(t, dsn, nil)).link.waitStep)
	assert.Equal(t, 500*time.Millisecond, acquire(t, newPool(t, dsn, func(c *Config) { c.T = 3 * time.Second })).link.waitStep)
	admin := connect(t, dsn)
	admin.exec("ALTER DATABASE " + admin.exec("SELECT current_database()")[0] + " SET deadlock_timeout = '100ms'")
	assert.Equal(t, 90*time.Millisecond, acquire(t, newPool(t, dsn, nil)).link.waitStep)
}

// The holder of a lock believes in it for 0.9 T after its last answered statement,
// also if the network is silent from then on.
func TestTheServersTCPKeepsASilentSessionUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	const asks = `SELECT current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_count')::int * current_setting('tcp_keepalives_interval')::int,
			current_setting('tcp_user_timeout')::int / 1000.0, pg_backend_pid()`
	for _, lease := range []time.Duration{500 * time.Millisecond, 15 * time.Second, 41 * time.Second, 24 * time.Hour} {
		var row []string
		if lease < time.Second { // a session of so brief a lease can be over before it is asked
			b := connect(t, dsn)
			row = b.exec(setSQL(Settings(lease, "", serverMajor(b.conn)), true) + ";" + asks)[:2]
		} else {
			var err error
			row, err = acquire(t, newPool(t, dsn, func(c *Config) { c.T = lease })).Query(asks)
			require.NoError(t, err)
		}
		for _, text := range row {
			seconds, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, seconds, lease.Seconds())
			assert.LessOrEqual(t, seconds, lease.Seconds()+10)
		}
	}
}

func TestWithoutPlpgsqlOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	connect(t, dsn).exec("DROP EXTENSION plpgsql")
	_, err := openPool(t, dsn, nil)
	require.ErrorIs(t, err, session.ErrUnavailable)
	require.ErrorContains(t, err, "CREATE EXTENSION plpgsql")
}

func TestAnApplicationNameIsQuoted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, name := range []string{`it's`, `a\b`, `'; SELECT 1; --`} {
		s := acquire(t, newPool(t, dsn, func(c *Config) { c.ApplicationName = name }))
		assert.Equal(t, name, connect(t, dsn).exec("SELECT application_name FROM pg_stat_activity WHERE pid = " + format(s.PID()))[0])
	}
}

func TestTheNameOfAProcessIsItsProgramAndItsHost(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ program, host, want string }{
		{"/usr/local/bin/billing", "web-3", "billing@web-3"},
		{"./billing.exe", "web-3", "billing@web-3"},
		{"billing", "", "billing"},
		{"", "web-3", "pglatch@web-3"},
		{"/opt/rechnung-ß", "web-3", "rechnung-??@web-3"},
		{"billing", strings.Repeat("x", 80) + "-7d9f8b6c5-x2x4z", "billing@" + strings.Repeat("x", 20) + "..." + strings.Repeat("x", 16) + "-7d9f8b6c5-x2x4z"},
	} {
		got := processName(row.program, row.host)
		assert.Equal(t, row.want, got)
		assert.LessOrEqual(t, len(got), 63)
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, ApplicationName(filepath.Base(os.Args[0])+"@"+host), ProcessName())
}

func TestPostgreSQLShowsANameAsItIsWritten(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.DSN(t))
	for _, name := range []string{ProcessName(), processName("/opt/rechnung-ß", strings.Repeat("host", 30))} {
		assert.Equal(t, []string{name}, conn.exec("SELECT set_config('application_name', '"+name+"', false)"))
	}
}

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
