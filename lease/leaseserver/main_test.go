package leaseserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

func TestMain(m *testing.M) { leak.Main(m) }

const aMoment = 10 * time.Millisecond

// An answer is what a plain HTTP client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func send(tb testing.TB, h *httptest.Server, method, target, body string, header ...string) answer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), servetest.Bound)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.URL+target, strings.NewReader(body))
	require.NoError(tb, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := h.Client().Do(r)
	require.NoError(tb, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return answer{response.StatusCode, response.Header, string(data)}
}

// awaitStanding waits until the first request that waits for a lock was refused, and can be handed the lock.
func awaitStanding(tb testing.TB, s *leaseserver.Server, name string) {
	tb.Helper()
	await.Until(tb, servetest.Bound, func() bool { return s.Stands(name) })
}

// post sends a request that may fail.
func post(ctx context.Context, h *httptest.Server, target, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := h.Client().Do(r)
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}
