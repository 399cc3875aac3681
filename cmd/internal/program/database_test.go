package program_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
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
