package pgserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestAStoppedOrKilledServerStartsOnTheSameDataAndPort(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	dsn := s.DSN("")
	query(t, dsn, "CREATE TABLE t (what text)")
	ends := map[string]func() error{
		"smart":     func() error { return s.Stop(t.Context(), pgserver.Smart) },
		"fast":      func() error { return s.Stop(t.Context(), pgserver.Fast) },
		"immediate": func() error { return s.Stop(t.Context(), pgserver.Immediate) },
		"killed":    s.Kill,
	}
	for what, end := range ends {
		query(t, dsn, fmt.Sprintf("INSERT INTO t VALUES ('%s')", what))
		require.NoError(t, end(), what)
		require.Error(t, ping(t.Context(), dsn), what)
		require.Zero(t, s.PID(), what)
		require.NoError(t, end(), "a stopped server may be stopped again")
		require.NoError(t, s.Start(t.Context()), what)
		require.NoError(t, s.Start(t.Context()), "a running server may be started again")
		require.NotZero(t, s.PID(), what)
	}
	require.NoError(t, s.Restart(t.Context(), pgserver.Fast))
	assert.Equal(t, "4", query(t, dsn, "SELECT count(*)::text FROM t"))
}

func TestAServerThatDiedByItselfStartsAgain(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, s.Signal(syscall.SIGKILL))
	await.Until(t, await.Patience, func() bool { return s.PID() == 0 })
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, ping(t.Context(), s.DSN("")))
}

func TestASuspendedServerCanBeClosed(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, s.Signal(syscall.SIGSTOP))
	require.NoError(t, s.Close())
}

func TestTheServerIsNotRoot(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	info, err := os.Stat(s.SocketDir())
	require.NoError(t, err)
	assert.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
}

func TestSettingsOverrideTheDefaults(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "20", "application_name": "it's"}})
	for name, want := range map[string]string{
		"max_connections": "20", "application_name": "it's", "fsync": "off", "listen_addresses": "127.0.0.1",
	} {
		assert.Equal(t, want, query(t, s.DSN(""), "SHOW "+name), name)
	}
	assert.Contains(t, query(t, s.DSN(""), "SHOW server_version"), s.Version())
}

func TestTheLogShowsWhatAClientCausedAndNothingElse(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	offset, err := s.LogOffset()
	require.NoError(t, err)
	query(t, s.DSN(""), "SELECT 'fine'")
	text, err := s.LogSince(offset)
	require.NoError(t, err)
	require.Empty(t, text, "a healthy client leaves no line")

	conn, err := pgx.Connect(t.Context(), s.DSN("")+"&application_name=bad")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT 1/0")
	require.Error(t, err)
	require.NoError(t, conn.Close(t.Context()))
	text, err = s.LogSince(offset)
	require.NoError(t, err)
	assert.Contains(t, text, "postgres@postgres/bad ERROR:  division by zero")
}

func TestStartRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]pgserver.Options{
		"Options.Version is 13": {Version: 13},
		`Options.Settings["a b"]`: {Settings: map[string]string{
			"a b": "c",
		}},
		"no_such_setting": {Settings: map[string]string{"no_such_setting": "1"}}, // the server's own words
	} {
		_, err := pgserver.Start(t.Context(), options)
		require.ErrorContains(t, err, want)
	}
}

func TestAStandbyFollowsAndCanBePromoted(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	query(t, primary.DSN(""), "CREATE TABLE t AS SELECT 'before' AS what")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })

	assert.Equal(t, "true", query(t, standby.DSN(""), "SELECT pg_is_in_recovery()::text"))
	assert.Equal(t, "false", query(t, primary.DSN(""), "SELECT pg_is_in_recovery()::text"))
	query(t, primary.DSN(""), "INSERT INTO t VALUES ('after')")
	await.Until(t, await.Patience, func() bool {
		return query(t, standby.DSN(""), "SELECT string_agg(what, ' ' ORDER BY what) FROM t") == "after before"
	})

	require.NoError(t, primary.Kill())
	assert.Equal(t, "true", query(t, standby.DSN(""), "SELECT pg_promote()::text"))
	query(t, standby.DSN(""), "INSERT INTO t VALUES ('promoted')")
}

func TestAServerMayRunBehindACommandPrefixAndWithAnEnvironment(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{
		Host:          "localhost",
		CommandPrefix: []string{"sh", "-c", `echo "mark=$PGLATCH_MARK" >&2; exec "$@"`, "sh"},
		Env:           []string{"PGLATCH_MARK=here"},
	})
	assert.True(t, strings.HasPrefix(s.DSN("x"), "postgres://postgres@localhost:"))
	require.NoError(t, ping(t.Context(), s.DSN("")))
	text, err := s.LogSince(0)
	require.NoError(t, err)
	assert.Contains(t, text, "mark=here")
}

// query returns the first column of the first row, empty if there is none.
func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return strings.Join(values, "\n")
}

func TestServersBeginAsCopiesOfOneAndGoTheirOwnWays(t *testing.T) {
	t.Parallel()
	a, b := pgtest.StartServer(t, pgserver.Options{}), pgtest.StartServer(t, pgserver.Options{})
	const identifier = "SELECT system_identifier::text FROM pg_control_system()"
	assert.Equal(t, query(t, a.DSN(""), identifier), query(t, b.DSN(""), identifier), "initdb would have drawn another one")
	own := pgtest.StartServer(t, pgserver.Options{OwnSystem: true})
	assert.NotEqual(t, query(t, a.DSN(""), identifier), query(t, own.DSN(""), identifier))
	query(t, a.DSN(""), "CREATE TABLE t (what text)")
	c := pgtest.StartServer(t, pgserver.Options{})
	for _, s := range []*pgserver.Server{b, c} {
		assert.Equal(t, "0", query(t, s.DSN(""), "SELECT count(*)::text FROM pg_tables WHERE tablename = 't'"))
	}
}

func TestADatabaseIsCreatedWithEitherFormOfConnectionString(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	config, err := pgx.ParseConfig(s.DSN(""))
	require.NoError(t, err)
	for _, admin := range []string{
		s.DSN(""),
		s.DSN("") + "&dbname=template1",
		"host=" + s.SocketDir() + " port=" + query(t, s.DSN(""), "SHOW port") + " user=" + config.User + " dbname=postgres",
	} {
		dsn, err := pgserver.CreateDatabase(t.Context(), admin)
		require.NoError(t, err)
		name := query(t, dsn, "SELECT current_database()::text")
		assert.Regexp(t, "^pglatch_test_", name)

		left, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		require.NoError(t, pgserver.DropDatabase(t.Context(), admin, dsn), "although a client is connected")
		require.Error(t, left.Ping(t.Context()))
		assert.Empty(t, query(t, s.DSN(""), "SELECT datname::text FROM pg_database WHERE datname = '"+name+"'"))
		require.NoError(t, pgserver.DropDatabase(t.Context(), admin, dsn), "a test may drop its database itself")
	}
}

func TestOnlyDatabasesOfTestsAreDropped(t *testing.T) {
	t.Parallel()
	s := pgtest.StartServer(t, pgserver.Options{})
	query(t, s.DSN(""), "CREATE DATABASE precious")
	require.ErrorContains(t, pgserver.DropDatabase(t.Context(), s.DSN(""), s.DSN("precious")), "it is not dropped")
	require.NoError(t, ping(t.Context(), s.DSN("precious")))
}

// helperVariable makes the test binary a helper process instead, see helper.
const helperVariable = "PGLATCH_PGSERVER_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperVariable); mode != "" {
		if err := helper(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

// A report is what a helper process prints about its server, on one line of JSON.
type report struct {
	DSN, Dir      string
	PID, Watchdog int
}

// helper starts a server, reports it, and ends with its standard input: by returning without a Close, or
// with a panic.
func helper(mode string) error {
	s, err := pgserver.Start(context.Background(), pgserver.Options{})
	if err != nil {
		return err
	}
	r := report{DSN: s.DSN(""), Dir: s.Dir(), PID: s.PID(), Watchdog: s.WatchdogPID()}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(s) // its finalizers would end the server, by the watchdog's pipe
	if mode == "panic" {
		panic("the helper panics on request")
	}
	return nil
}
