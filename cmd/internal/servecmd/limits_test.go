package servecmd_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

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
