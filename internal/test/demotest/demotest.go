// Package demotest runs demos in tests.
package demotest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
)

// Play builds the demo in this directory and runs it to its end. It returns the demo's output and its exit
// code.
func Play(t *testing.T, env []string, args ...string) (output string, code int) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "demo")
	require.NoError(t, gobuild.Program(t.Context(), ".", binary))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append(os.Environ(), env...)
	said, err := command.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return string(said), exit.ExitCode()
	}
	require.NoError(t, err, "%s", said)
	return string(said), 0
}
