package proctest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// roleVariable is the environment variable with the role of a process, and its configuration.
const roleVariable = "PGLATCH_TEST_ROLE"

// Play runs a role if this process was started to play it, and then ends the process. An error is written to standard
// error, and the exit code is 1. TestMain calls Play first.
func Play[C any](role string, run func(ctx context.Context, config C) error) {
	text, ok := strings.CutPrefix(os.Getenv(roleVariable), role+"=")
	if !ok {
		return
	}
	var config C
	err := json.Unmarshal([]byte(text), &config)
	if err == nil {
		err = run(context.Background(), config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// As returns the command that runs the test's own executable in a role, behind a prefix as in Under. The configuration
// arrives there through JSON.
func As(tb testing.TB, role string, config any, prefix ...string) *exec.Cmd {
	tb.Helper()
	text, err := json.Marshal(config)
	require.NoError(tb, err)
	return Under(tb, prefix, roleVariable+"="+role+"="+string(text))
}
