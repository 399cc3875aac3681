package leadercmd_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestTheLogsOfTwoNodesProveThatTheirCommandsNeverMet(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	run := []string{"leader", "run", "7:100", "--log-format", "json", "--id"}
	first := clitest.Start(t, clitest.At(dsn), append(run, "node-a", "--", "sleep", "600")...)
	first.Saying(&first.Stderr, "work_began")
	second := clitest.Start(t, clitest.At(dsn), append(run, "node-b")...)
	second.Saying(&second.Stderr, "state_change")
	first.Signal(syscall.SIGTERM)
	first.Wait()
	second.Saying(&second.Stderr, "work_began")
	second.Signal(syscall.SIGTERM)
	require.Zero(t, second.Wait())
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	a, b := write("a.log", first.Stderr.String()), write("b.log", second.Stderr.String())
	stdout, stderr, code := clitest.Run(t, nil, "leader", "verify", a, b)
	assert.Zero(t, code, "%s%s", stdout, stderr)
	assert.Contains(t, stdout, "7:100: work of two terms never ran at one time (2 terms, 2 intervals")

	stdout, _, code = clitest.Run(t, nil, "leader", "verify", "-o", "json", b, write("c.log", `{"msg":"work_began","election":"7:100","identity":"node-c","term":"1.1","began":"2026-01-01T00:00:00Z"}`))
	assert.Equal(t, 70, code)
	assert.Equal(t, "unknown", clitest.Decode[[]map[string]any](t, stdout)[0]["verdict"], "it was killed, or goes on")

	for _, files := range [][]string{nil, {write("d.log", "nothing\n")}, {filepath.Join(dir, "none")}} {
		_, stderr, code = clitest.Run(t, nil, append([]string{"leader", "verify"}, files...)...)
		assert.Equal(t, 64, code, stderr)
	}
}
