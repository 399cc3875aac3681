package pgsession

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
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
