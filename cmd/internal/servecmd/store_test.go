package servecmd_test

import (
	"database/sql"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

// page gets a page of a lock server.
func page(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(raw)
}

func TestTheProbesOfServeLocksTellOfAStoreThatHasStopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+file)
	probes := func(want int) {
		for _, probe := range []string{"/healthz", "/readyz"} {
			status, body := page(t, address, probe)
			assert.Equal(t, want, status, "%s: %s", probe, body)
		}
	}
	probes(http.StatusNoContent)
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)") // the server may just write
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "DROP TABLE state")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	probes(http.StatusServiceUnavailable)
}

func TestServeLocksHandsALockToItsWaiterInOneOperation(t *testing.T) {
	t.Parallel()
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
	server := "http://" + address
	stdout, stderr, code := clitest.Run(t, nil, "lease", "acquire", "job", "--owner", "a", "--ttl", "1h", "-o", "json", "--server", server)
	require.Zero(t, code, stderr)
	held := clitest.Decode[clitest.LeaseAnswer](t, stdout)
	waiter := clitest.Start(t, nil, "lease", "acquire", "job", "--owner", "b", "--wait", await.Soon.String(), "--server", server)
	var metrics string
	clitest.Eventually(t, func() bool {
		_, metrics = page(t, address, "/metrics")
		return strings.Contains(metrics, "lock_waiters 1\n")
	}, func() string { return "a waiter: " + metrics })
	const handed = `lock_op_duration_seconds_count{op="hand_over"} `
	assert.True(t, strings.Contains(metrics, handed+"0\n"), "before the release") //nolint:testifylint // Contains would print all metrics
	_, stderr, code = clitest.Run(t, nil, "lease", "release", "job", "--owner", "a", "--lease-id", held.LeaseID, "--fencing-token", strconv.FormatUint(held.FencingToken, 10), "--server", server)
	require.Zero(t, code, stderr)
	assert.Zero(t, waiter.Wait(), waiter.Stderr.String())
	clitest.Eventually(t, func() bool { // it is counted after the answer
		_, metrics = page(t, address, "/metrics")
		return strings.Contains(metrics, handed+"1\n")
	}, func() string { return "after it: " + metrics })
}
