package lockcmd_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
)

const names = "PGLATCH_NAMESPACES=agent=1,order=2"

func TestWatchGoesOnWhenTheServerComesBack(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "before"), "SELECT pg_advisory_lock(1, 1)")
	p := clitest.Start(t, clitest.At(server.DSN("")), "watch", "--interval", "250ms", "--log-format", "json")
	p.Saying(&p.Stdout, `"before"`)
	require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
	p.Saying(&p.Stderr, "lock_snapshot_failed")
	require.NoError(t, server.Start(t.Context()))
	p.Saying(&p.Stderr, "lock_snapshot_recovered")
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "after"), "SELECT pg_advisory_lock(1, 1)")
	p.Saying(&p.Stdout, `"after"`)
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait())
}

func TestAStandbyDoesNotHaveThePrimarysLocks(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	clitest.Execute(t, clitest.Connect(t, primary.DSN("postgres"), "holder"), "SELECT pg_advisory_lock(1, 1)")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	for _, args := range [][]string{{"ls"}, {"tree"}, {"status", "1:1"}, {"ls", "--json"}} {
		stdout, stderr, code := clitest.Run(t, clitest.At(standby.DSN("postgres")), args...)
		assert.Equal(t, program.ExitUnavailable, code, args)
		assert.Contains(t, stderr, "this server is a standby", args)
		assert.NotContains(t, stdout, "is free", args)
		if len(args) == 2 && args[1] == "--json" {
			assert.True(t, clitest.Decode[struct{ Server monitor.Server }](t, stdout).Server.Standby)
		}
	}
	_, stderr, code := clitest.Run(t, clitest.At(primary.DSN("postgres")), "ls")
	assert.Zero(t, code, "control: "+stderr)
}
