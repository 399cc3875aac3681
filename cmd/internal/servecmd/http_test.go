package servecmd_test

import (
	"database/sql"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestServeLocksKeepsToTheLimitsThatItIsGiven(t *testing.T) {
	t.Parallel()
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"),
		"--rate", "0.0001", "--burst", "4", "--max-wait", "50ms", "--max-body", "100", "--store-timeout", "9s", "--max-waiters", "3")
	acquire := func(target, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/locks/job/acquire"+target, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(answer)
	}
	for _, c := range []struct {
		target, body string
		status       int
		says         string
	}{
		{"", `{"owner_id":"a","ttl_ms":3600000}`, http.StatusOK, "fencing_token"},
		{"?wait=24h", `{"owner_id":"b","ttl_ms":3600000}`, http.StatusConflict, "lock-held"},
		{"", `{"owner_id":"b","ttl_ms":3600000,"metadata":{"x":"` + strings.Repeat("x", 100) + `"}}`, http.StatusRequestEntityTooLarge, "larger than 100 bytes"},
		{"", `{}`, http.StatusBadRequest, "owner_id is empty"},
		{"", `{"owner_id":"a","ttl_ms":3600000}`, http.StatusTooManyRequests, "rate-limited"},
	} {
		status, answer := acquire(c.target, c.body)
		assert.Equal(t, c.status, status, answer)
		assert.Contains(t, answer, c.says)
	}
}
