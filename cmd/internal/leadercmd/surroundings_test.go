package leadercmd_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A standby has locks of its own: "nobody leads" would be wrong there.
func TestNoLeaderCommandBelievesAStandby(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	_, stderr, code := clitest.Run(t, clitest.At(primary.DSN("")), "migrate")
	require.Zero(t, code, stderr)
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	at := clitest.At(standby.DSN(""))
	for _, line := range []string{"leader status 7:1", "leader watch 7:1", "leader resign 7:1", "leader resign 7:1 --to a", "leader run 7:1 --no-auto-reacquire", "migrate", "migrate --new-era"} {
		stdout, stderr, code := clitest.Run(t, at, strings.Fields(line)...)
		assert.Equal(t, program.ExitUnavailable, code, "%s: %s%s", line, stdout, stderr)
		assert.Empty(t, stdout, line)
		assert.Contains(t, lastLine(stderr), "server is a standby", line)
		assert.Contains(t, lastLine(stderr), "connect to the primary", line)
		assert.NotContains(t, stderr, "SQLSTATE", line)
	}
	node := clitest.Start(t, at, "leader", "run", "7:1", "--retry-base", "10ms", "--retry-max", "10ms") // which may be promoted
	node.Saying(&node.Stderr, "connect to the primary")
	clitest.Execute(t, clitest.Connect(t, standby.DSN(""), "admin"), "SELECT pg_promote()")
	node.Saying(&node.Stderr, "lock_acquired")
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// hostile is what an administrator may set for a role, to keep reports from harm.
const hostile = `CREATE ROLE hostile LOGIN; ALTER ROLE hostile SET statement_timeout = '1ms'; ALTER ROLE hostile SET default_transaction_read_only = on;
	ALTER ROLE hostile SET lock_timeout = '1ms'; ALTER ROLE hostile SET idle_session_timeout = '1s'; ALTER ROLE hostile SET idle_in_transaction_session_timeout = '10ms';
	ALTER ROLE hostile SET search_path = 'evil'; ALTER ROLE hostile SET default_transaction_isolation = serializable; ALTER ROLE hostile SET synchronous_commit = off;
	GRANT SELECT, INSERT, UPDATE ON pglatch_election TO hostile; GRANT CREATE ON SCHEMA public TO hostile`

// A node's own session overrides what its role sets. A short look does not, because a pooler may carry it.
func TestARoleOfHostileSettingsLeadsAndIsToldWhatIsInTheWayOfTheRest(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	_, stderr, code := clitest.Run(t, clitest.At(server.DSN("")), "migrate")
	require.Zero(t, code, stderr)
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "admin"), hostile)
	at := clitest.At(pgtest.As(t, server.DSN(""), "hostile"))
	first := clitest.Start(t, at, "leader", "run", "7:1", "--id", "a")
	first.Saying(&first.Stderr, "lock_acquired")
	second := clitest.Start(t, at, "leader", "run", "7:1", "--id", "b")
	second.Saying(&second.Stderr, "state.from=acquiring state.to=follower")
	look := clitest.Connect(t, server.DSN(""), "look")
	await.Until(t, await.Soon, func() bool { // the leader's session is idle for longer than the role allows
		var idle bool
		err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'hostile' AND state = 'idle' AND state_change < clock_timestamp() - interval '1500ms')`).Scan(&idle)
		return err == nil && idle
	}, "no session is idle for so long")
	first.Signal(syscall.SIGTERM)
	require.Zero(t, first.Wait())
	second.Saying(&second.Stderr, "lock_acquired")
	assert.NotContains(t, first.Stderr.String()+second.Stderr.String(), "level=WARN")

	// What ends sessions of a busy client has errors of its own.
	clitest.Execute(t, look, `ALTER ROLE hostile RESET idle_session_timeout; ALTER ROLE hostile RESET idle_in_transaction_session_timeout`)
	for _, line := range []string{"leader status 7:1", "leader watch 7:1", "leader resign 7:1", "migrate --table other"} {
		_, stderr, code := clitest.Run(t, at, strings.Fields(line)...)
		if code == 0 { // a millisecond is long for a statement at times
			continue
		}
		assert.Equal(t, program.ExitUnavailable, code, "%s: %s", line, stderr)
		assert.Regexp(t, "ALTER ROLE ... SET statement_timeout|ALTER ROLE ... RESET default_transaction_read_only", stderr, line)
	}
	creating := clitest.Start(t, at, "leader", "run", "7:2", "--create-table", "--table", "other")
	creating.Saying(&creating.Stderr, "ALTER ROLE")
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestScript(t *testing.T) { clitest.Scripts(t) }
