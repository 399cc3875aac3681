package program_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func TestADatabaseThatIsNotThereEndsWith69(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"ls", "tree", "watch", "status 1:2", "doctor", "ls -v --json", "doctor --log-level debug",
		"run 1:2 -- true", "try 1:2", "ask 1:2", "terminate 4711", "leader run 1:2 --no-auto-reacquire", "leader status 1:2", "leader watch 1:2", "leader resign 1:2", "migrate",
		"shards ls g=1", "serve locks --listen 127.0.0.1:0 --store postgres",
	} {
		stdout, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), strings.Fields(args)...)
		assert.Equal(t, program.ExitUnavailable, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, "127.0.0.1:1", args)
		assert.NotContains(t, stderr, "s3cret", args)
		assert.True(t, strings.HasSuffix(stderr, "connect: connection refused; check DATABASE_URL, and that PostgreSQL is up\n"), "%s: %s", args, stderr)
		assert.Equal(t, 1, strings.Count(lastLine(stderr), "connection refused"), "pgx tries with and without TLS: %s: %s", args, stderr)
	}
	_, stderr, code := clitest.Run(t, nil, "ls", "--database-url", clitest.Nowhere)
	assert.Equal(t, program.ExitUnavailable, code)
	assert.Contains(t, stderr, "; check --database-url, and that PostgreSQL is up\n", "where the address is from")
}

// lastLine is the error of a command, after what it logged.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestALogLineOfADatabaseThatIsNotThereSaysWhatToLookAt(t *testing.T) {
	t.Parallel()
	node := clitest.Start(t, clitest.At(clitest.Nowhere), "leader", "run", "1:2")
	node.Saying(&node.Stderr, `connect: connection refused; check DATABASE_URL, and that PostgreSQL is up"`)
	node.Signal(syscall.SIGTERM)
	assert.Zero(t, node.Wait())
}

// Nobody listens at port 1 of the local server, whose socket or address pgx knows.
func TestACommandWithoutADatabaseSaysWhatToSet(t *testing.T) {
	t.Parallel()
	const says = "no database is named: set DATABASE_URL, or --database-url, to its URL, such as postgres://user:password@host:5432/database, or set the PG* variables"
	nobody := []string{"PGPORT=1", "PGUSER=nobody", "PGSSLMODE=disable"}
	for _, args := range []string{
		"ls", "tree", "status 1:2", "doctor", "migrate", "ask 1:2", "terminate 4711", "run 1:2 -- true", "leader status 1:2", "leader watch 1:2", "leader resign 1:2",
		"leader run 1:2", "leader run 1:2 -- true", "shards ls g=1", "ls --json", "watch",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			_, stderr, code := clitest.Run(t, nobody, strings.Fields(args)...)
			assert.Equal(t, program.ExitUnavailable, code, stderr)
			assert.Contains(t, stderr, "pglatch: "+says)
			assert.NotContains(t, stderr, "failed to connect", "in the words of what the user typed")

			named := clitest.Start(t, append([]string{"PGHOST=127.0.0.1"}, nobody...), strings.Fields(args)...)
			named.Saying(&named.Stderr, "127.0.0.1:1") // leader run waits for it
			assert.NotContains(t, named.Stderr.String(), says, "the control: a host is named")
			if !strings.HasPrefix(args, "leader run") {
				named.Wait()
				assert.Contains(t, named.Stderr.String(), "; check the PG* variables, and that PostgreSQL is up")
			}
		})
	}
	t.Run("leader run --keep-trying", func(t *testing.T) {
		t.Parallel()
		node := clitest.Start(t, nobody, "leader", "run", "1:2", "--keep-trying")
		node.Saying(&node.Stderr, says) // and waits: the local server may just start
		node.Signal(syscall.SIGTERM)
		assert.Zero(t, node.Wait())
	})
}

func TestAHostThatDoesNotAnswerIsGivenUpAfterTheConnectTimeout(t *testing.T) {
	t.Parallel()
	dsn := "postgres://u:s3cret@" + clitest.SilentHost(t) + "/d?sslmode=disable"
	for _, args := range []string{"doctor --connect-timeout 100ms", "ls --connect-timeout 100ms"} {
		_, stderr, code := clitest.Run(t, clitest.At(dsn), strings.Fields(args)...)
		assert.Equal(t, program.ExitUnavailable, code, stderr)
	}
}

// The database of each source is one of its own, whose name doctor tells.
func TestTheFirstSourceThatNamesADatabaseCounts(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsns := make([]string, 6)
	names := make([]string, len(dsns))
	for i := range dsns {
		dsns[i] = pgtest.DSN(t)
		cc, err := pgx.ParseConfig(dsns[i])
		require.NoError(t, err)
		names[i] = cc.Database
	}
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte(dsns[1]+"\n"), 0o600))
	cc, err := pgx.ParseConfig(dsns[5])
	require.NoError(t, err)

	flags := []string{"--database-url", dsns[0], "--database-url-file", file}
	env := []string{
		"PGLATCH_DATABASE_URL=" + dsns[2], "DATABASE_URL=" + dsns[3], "PG_DSN=" + dsns[4],
		"PGHOST=" + cc.Host, "PGPORT=" + strconv.Itoa(int(cc.Port)), "PGUSER=" + cc.User, "PGPASSWORD=" + cc.Password, "PGDATABASE=" + cc.Database, "PGSSLMODE=disable",
	}
	database := func(env []string, args ...string) string {
		stdout, stderr, code := clitest.Run(t, env, append([]string{"ls", "--json"}, args...)...)
		require.Zero(t, code, stderr)
		return clitest.Decode[struct{ Server struct{ Database string } }](t, stdout).Server.Database
	}
	assert.Equal(t, names[0], database(env, flags...))
	assert.Equal(t, names[0], database(env, "--dsn", dsns[0]))
	assert.Equal(t, names[1], database(env, flags[2:]...))
	for i := range 4 { // an empty variable is none
		assert.Equal(t, names[2+i], database(env))
		if i < 3 {
			name, _, _ := strings.Cut(env[i], "=")
			env[i] = name + "="
		}
	}
}

func TestAStringThatIsNoConnectionStringIsWithheld(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:s3cret/x@host/d",
		"postgres://u:12@s3cret@127.0.0.1/d",
		"postgres://u:12/s3cret@127.0.0.1/d",
		"postgres://u:s3cret%zz@host/d",
		"postgres://u:s3cret@host:99999999/d",
		"host=x password='s3cret",
		"host=x password=a s3cret",
	} {
		for _, args := range [][]string{{"ls", "-v"}, {"doctor"}, {"status", "1:2", "--log-format", "json", "-v"}} {
			stdout, stderr, code := clitest.Run(t, clitest.At(dsn), args...)
			assert.Equal(t, program.ExitUsage, code, stderr)
			assert.Empty(t, stdout)
			assert.Regexp(t, `DATABASE_URL: .*, at character \d+ \(the text is withheld: it may hold a password\)`, stderr)
			assert.NotContains(t, stderr, "s3cret")
			assert.NotContains(t, stderr, "12/")
		}
	}
	_, stderr, code := clitest.Run(t, []string{"PGPORT=many"}, "ls")
	assert.Equal(t, program.ExitUsage, code)
	assert.Contains(t, stderr, "the PG* variables: a port is not a number from 1 to 65535")
}

func TestARefusedPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := clitest.Connect(t, server.DSN(""), "admin")
	// A role whose name and whose rejection would quote what stands in the URL.
	const right, wrong = `it's "s3cret"/@?#%`, `wr0ng "s3cret" \/@?#%`
	clitest.Execute(t, admin, fmt.Sprintf(`SET password_encryption = 'scram-sha-256'; CREATE ROLE app LOGIN PASSWORD '%s'`, strings.ReplaceAll(right, "'", "''")))
	var hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("host all app 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n"), 0o600))
	var reloaded bool
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT pg_reload_conf()").Scan(&reloaded))
	require.True(t, reloaded)

	as := func(password string) []string {
		u, err := url.Parse(server.DSN(""))
		require.NoError(t, err)
		u.User = url.UserPassword("app", password)
		return clitest.At(u.String())
	}
	await.Until(t, await.Soon, func() bool { _, _, code := clitest.Run(t, as(wrong), "ls"); return code == program.ExitRefused }, "refused")
	for _, args := range []string{"ls -v", "status 1:2 --log-format json -v", "doctor -v", "watch -v", "watch --log-format json"} {
		stdout, stderr, code := clitest.Run(t, as(wrong), strings.Fields(args)...)
		assert.Equal(t, program.ExitRefused, code, args)
		assert.Contains(t, stderr, "28P01", args)
		for _, secret := range []string{"s3cret", "wr0ng", url.QueryEscape(wrong), url.PathEscape(wrong)} {
			assert.NotContains(t, stdout+stderr, secret, args)
		}
	}
	stdout, stderr, code := clitest.Run(t, as(right), "doctor") // the control
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, `user "app"`)
	assert.NotContains(t, stdout+stderr, "s3cret")
	assert.Contains(t, stdout, "warn  rights")
}

func TestACommandThatTheDatabaseRefusesSaysWhyFirstAndThatItIsForGood(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	u.Path = "/nowhere"
	for _, args := range []string{"run 1:2 -- true", "try 1:2", "ls", "tree", "status 1:2", "watch", "doctor", "migrate"} {
		stdout, stderr, code := clitest.Run(t, clitest.At(u.String()), strings.Fields(args)...)
		assert.Equal(t, 77, code, "%s: %s", args, stderr)
		assert.Empty(t, stdout, args)
		want := `pglatch: database "nowhere" does not exist (SQLSTATE 3D000, PostgreSQL at ` + u.Host + "): create the database, or connect to another\n"
		assert.True(t, strings.HasSuffix(stderr, want), "%s: %s", args, stderr)
	}
	_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), "ls") // the control
	assert.Equal(t, 69, code, stderr)
}

// entries are all that takes a connection string. Each does one thing with the
// database that it names.
var entries = map[string]func(t *testing.T, dsn string) error{
	"advisory": func(t *testing.T, dsn string) error {
		t.Helper()
		return lockOnce(t, advisory.Config{DSN: dsn})
	},
	"advisory, multiplexed": func(t *testing.T, dsn string) error {
		t.Helper()
		return lockOnce(t, advisory.Config{DSN: dsn, LocksPerConn: 100})
	},
	"monitor": func(t *testing.T, dsn string) error {
		t.Helper()
		m, err := monitor.Open(monitor.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = m.Snapshot(t.Context())
		return err
	},
	"leader": func(t *testing.T, dsn string) error {
		t.Helper()
		b, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(9, lastKey.Add(1)), CreateTable: true})
		if err != nil {
			return err
		}
		defer func() { require.NoError(t, b.Close()) }()
		won, err := b.TryAcquire(t.Context(), "node", time.Minute)
		if err == nil && !won {
			return errors.New("not won")
		}
		return err
	},
	"lease": func(t *testing.T, dsn string) error {
		t.Helper()
		s, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer s.Close()
		if err = s.Migrate(t.Context()); err != nil {
			return err
		}
		if _, err = s.Get(t.Context(), "nothing"); errors.Is(err, lease.ErrNotFound) {
			return nil
		}
		return err
	},
	"command": func(t *testing.T, dsn string) error {
		t.Helper()
		if _, stderr, code := clitest.Run(t, clitest.At(dsn), "ls"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, stderr)
		}
		return nil
	},
	"lock server": func(t *testing.T, dsn string) error {
		t.Helper()
		p := clitest.Start(t, clitest.At(dsn), "serve", "locks", "--listen", "127.0.0.1:0", "--store", "postgres")
		serving := func() bool { return strings.Contains(p.Stderr.String(), "msg=serving") }
		await.Until(t, await.Soon, func() bool {
			select {
			case <-p.Done:
				return true
			default:
				return serving()
			}
		}, p.Stderr.String)
		if !serving() {
			return fmt.Errorf("exit %d: %s", p.Wait(), p.Stderr.String())
		}
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 0 {
			return fmt.Errorf("exit %d: %s", code, p.Stderr.String())
		}
		return nil
	},
}

func lockOnce(t *testing.T, config advisory.Config) error {
	t.Helper()
	locker, err := advisory.Open(t.Context(), config)
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(t.Context(), namespace.Pair(9, 1), func(context.Context) error { return nil })
}

// lastKey is that of the last election: who has just left one is not in the way of the next.
var lastKey atomic.Int32

func TestEveryEntryTakesTheConnectionStringsOfLibpqAndPgxpool(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	cc, err := pgx.ParseConfig(server.DSN(""))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	service, pass := filepath.Join(dir, "services"), filepath.Join(dir, "pass")
	words := fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cc.Host, cc.Port, cc.User, cc.Database)
	require.NoError(t, os.WriteFile(service, []byte("[shop]\n"+strings.ReplaceAll(words, " ", "\n")+"\n"), 0o600))
	require.NoError(t, os.WriteFile(pass, []byte("*:*:*:*:unused\n"), 0o600))
	base := fmt.Sprintf("postgres://%s@%s:%d/%s?sslmode=disable", url.User(cc.User), cc.Host, cc.Port, cc.Database)
	forms := map[string]string{
		"URL":               base,
		"keywords":          words + " sslmode=disable",
		"pool settings":     base + "&pool_max_conns=7&pool_min_conns=1&pool_max_conn_lifetime=1h&pool_health_check_period=10s",
		"pool in keywords":  words + " pool_max_conns=7 pool_max_conn_idle_time=1m",
		"service file":      "service=shop servicefile=" + service,
		"password file":     base + "&passfile=" + url.QueryEscape(pass),
		"TLS if it is":      strings.Replace(base, "disable", "prefer", 1),
		"several hosts":     fmt.Sprintf("postgres://%s@127.0.0.1:1,%s:%d/%s?target_session_attrs=read-write", url.User(cc.User), cc.Host, cc.Port, cc.Database),
		"socket":            fmt.Sprintf("host=%s port=%d user=%s dbname=%s", server.SocketDir(), server.Port(), cc.User, cc.Database),
		"socket in a URL":   fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", url.User(cc.User), cc.Database, url.QueryEscape(server.SocketDir()), server.Port()),
		"a long name":       base + "&application_name=" + strings.Repeat("n", 300),
		"settings of a pgx": base + "&default_query_exec_mode=simple_protocol&statement_cache_capacity=0",
	}
	for name, enter := range entries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for form, dsn := range forms {
				assert.NoError(t, enter(t, dsn), form)
			}
		})
	}
}

func TestNoEntryQuotesAConnectionStringThatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, enter := range entries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for dsn, place := range map[string]string{
				"postgres://u:a@S3cr3t@127.0.0.1/d":           "at character 15",
				"postgres://u:12/S3cr3t@127.0.0.1/d":          "at character 16",
				"postgres://u:S3cr3t%zz@127.0.0.1/d":          "at character 20",
				"host=127.0.0.1 user=u password=a S3cr3t":     "at character 34",
				"host=127.0.0.1 user=u password='S3cr3t":      "at character 32",
				"postgres://u:S3cr3t@127.0.0.1/d?sslmode=yes": "at character 33",
			} {
				err := enter(t, dsn)
				require.ErrorContains(t, err, place)
				require.ErrorContains(t, err, "withheld")
				assert.NotContains(t, err.Error(), "S3cr3t")
			}
		})
	}
}

func TestTheFlagReplacesTheEnvironmentsNamespaces(t *testing.T) {
	t.Parallel()
	env := []string{"PGLATCH_NAMESPACES=agent=1,order=2"}
	stdout, _, code := clitest.Run(t, env, "key", "--namespace", "agent=7", "agent/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "7, 1")
	_, _, code = clitest.Run(t, env, "key", "--namespace", "agent=7", "order/1")
	assert.Equal(t, program.ExitUsage, code)
	stdout, _, code = clitest.Run(t, nil, "key", "--namespace", "agent=7,order=8", "order/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "8, 1")
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestEachConditionHasItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{&program.ExitError{Code: 3}, 3},
		{fmt.Errorf("x: %w", &program.ExitError{Code: 126, Err: errors.New("y")}), 126},
		{&advisory.HeldError{Key: namespace.Pair(1, 2)}, 75},
		{&advisory.TimeoutError{Key: namespace.Pair(1, 2), Cause: context.DeadlineExceeded}, 75},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrUnavailable}, 76},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrRefused}, 76},
		{advisory.ErrUnavailable, 69},
		{advisory.ErrRefused, 77},
		{fmt.Errorf("%w: %w", leader.ErrConnection, advisory.ErrRefused), 77},
		{&pgconn.PgError{Code: "42501"}, 77},
		{&pgconn.PgError{Code: "57P03"}, 70},
		{advisory.ErrPooler, 69},
		{advisory.ErrStandby, 69},
		{advisory.ErrLockTableFull, 69},
		{&advisory.ConfigError{Field: "MaxConns"}, 64},
		{&namespace.ClashError{}, 64},
		{&program.SignalError{Signal: syscall.SIGINT}, 130},
		{&program.SignalError{Signal: syscall.SIGTERM}, 143},
		{errors.New("whatever"), 70},
	} {
		assert.Equal(t, c.code, program.Code(c.err), "%v", c.err)
	}
}

func TestExitCodesAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "exit-codes", append(frozen.Constants(t, ".", "Exit[A-Z].*"), frozen.Constants(t, "../supervise", "Exit[A-Z].*")...))
}
