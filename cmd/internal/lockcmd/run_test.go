package lockcmd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestAPlainNameIsOneLockInEveryCommandAndInGo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "nightly-report", "-c", "echo $PGLATCH_KEY")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "name/nightly-report\n", stdout)

	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	defer locker.Close()
	key, err := namespace.Must(32767, "name").Text("nightly-report")
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), key, func(context.Context) error {
		for args, want := range map[string]int{
			"run -n nightly-report -- true":                          75,
			"run -n --namespace agent=1 name/nightly-report -- true": 75,
			"run -n nightly -- true":                                 0,
			"status nightly-report":                                  0,
			"status nightly":                                         3,
		} {
			_, stderr, code := clitest.Run(t, clitest.At(dsn), strings.Fields(args)...)
			assert.Equal(t, want, code, "%s: %s", args, stderr)
		}
		stdout, _, _ := clitest.Run(t, clitest.At(dsn), "ls", "name/")
		assert.Contains(t, stdout, "name") // the namespace; the entity if the process answers in time
		return nil
	}))
}

func TestACommandAndAProgramOnOneEntityExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	agents := namespace.Must(1, "agent")
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	none := func(context.Context) error { return nil }

	p := clitest.Start(t, clitest.At(dsn), "run", "--namespace", "agent=1", "agent/42", "-c", `echo pid=$$; exec sleep 1000`)
	p.Number("pid")
	ran, err := locker.DoOrSkip(t.Context(), agents.ID(42), none)
	require.NoError(t, err)
	assert.False(t, ran)
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.Wait())
	require.NoError(t, locker.Do(t.Context(), agents.ID(42), func(context.Context) error {
		_, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "-n", "--namespace", "agent=1", "agent/42", "--", "true")
		assert.Equal(t, 75, code, stderr)
		return nil
	}))
}

func TestACommandThatWasSuspendedPastItsLockDoesNotGoOn(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	rounds := filepath.Join(t.TempDir(), "rounds")
	// timeout(1) makes a group whose parent, the test, can let it go on.
	p := clitest.StartCommand(t, clitest.At(dsn), "timeout", "1000", clitest.Binary, "run", "--session-ttl", "6s", "1:42", "-c",
		"echo child=$$; echo wrapper=$PPID; while :; do echo round >>"+rounds+"; sleep 0.05; done")
	wrapper, child := p.Number("wrapper"), p.Number("child")
	t.Cleanup(func() { _ = syscall.Kill(wrapper, syscall.SIGKILL) })
	clitest.Eventually(t, func() bool { return size(rounds) > 0 }, func() string { return "no round" })
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGTSTP))
	clitest.RequireFree(t, conn) // the server ended the session
	before := size(rounds)
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGCONT))
	assert.Equal(t, 76, p.Wait(), p.Stderr.String())
	assert.Equal(t, before, size(rounds))
	assert.False(t, clitest.Lives(child))
}

// size is that of a file, 0 if there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
