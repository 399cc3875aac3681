package main_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The demo itself, which checks its own claims, is run by CI: make demo-cluster ONCE=1.
func TestAClaimFailsWhenClientsIgnoreThatTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "cluster")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", output)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	output, err = exec.CommandContext(ctx, binary, "-once", "-break").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", output)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, string(output), "NOT TRUE: nobody was inside a lock in which somebody else was")
	assert.Contains(t, string(output), "1 of 3 claims failed", "tokens rose all the same")
}
