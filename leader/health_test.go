package leader_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func node(t *testing.T, backend leader.Backend, identity string) *leader.Elector {
	t.Helper()
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Identity: identity})
	require.NoError(t, err)
	return e
}

// probe asks a node's Handler.
func probe(t *testing.T, e *leader.Elector, path string) (int, health) {
	t.Helper()
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var h health
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &h), w.Body)
	return w.Code, h
}

// A health is the body of an answer.
type health struct {
	State    string     `json:"state"`
	Name     string     `json:"name"`
	Identity string     `json:"identity"`
	Term     string     `json:"term"`
	Since    *time.Time `json:"since"`
}

// A stubbornBackend is one whose Renew does not heed its context once it is stuck.
type stubbornBackend struct {
	*leadertest.Backend
	stuck chan struct{} // closed = Renew blocks
	free  chan struct{}
}

func (b *stubbornBackend) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	select {
	case <-b.stuck:
		<-b.free
	default:
	}
	return b.Backend.Renew(ctx, identity, ttl)
}

func TestLivezFailsWhenANodeCountsAsLeaderForLongAfterItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &stubbornBackend{leadertest.NewElection().Backend(), make(chan struct{}), make(chan struct{})}
		e := node(t, b, "a")
		alive := func() bool { code, _ := probe(t, e, "/livez"); return code == http.StatusOK }
		require.True(t, alive(), "not started")
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		bubble.Sleep(time.Hour)
		require.True(t, alive(), "renewals go on")

		close(b.stuck)
		b.Kill() // the backend announces the loss, and does not say why
		bubble.Sleep(lease)
		require.False(t, e.IsLeader())
		require.Equal(t, leader.Leader, e.State(), "the loop waits for the reason")
		require.True(t, alive(), "tolerated")
		bubble.Sleep(lease)
		require.False(t, alive())

		close(b.free)
		synctest.Wait()
		require.True(t, alive(), "the loop goes on: a follower is alive, whatever the network does")
		require.NoError(t, e.Shutdown(t.Context()))
	})
}

const lease = driver.DefaultLeaseDuration

func TestHandlerTellsWhereANodeStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, b := node(t, election.Backend(), "a"), node(t, election.Backend(), "b")
		for _, path := range []string{"/leader", "/readyz"} {
			code, h := probe(t, a, path)
			assert.Equal(t, http.StatusServiceUnavailable, code, path)
			assert.Equal(t, health{State: "stopped", Name: "scheduler", Identity: "a"}, h)
		}
		code, _ := probe(t, a, "/livez")
		assert.Equal(t, http.StatusOK, code, "nothing hangs")

		start := time.Now().UTC()
		for _, e := range []*leader.Elector{a, b} {
			require.NoError(t, e.Start(t.Context()))
			synctest.Wait()
		}
		code, h := probe(t, a, "/leader")
		assert.Equal(t, http.StatusOK, code)
		require.NotNil(t, h.Since)
		assert.Equal(t, start, h.Since.UTC())
		h.Since = nil
		assert.Equal(t, health{State: "leader", Name: "scheduler", Identity: "a", Term: "1.1"}, h)
		code, h = probe(t, b, "/leader")
		assert.Equal(t, http.StatusServiceUnavailable, code)
		assert.Equal(t, health{State: "follower", Name: "scheduler", Identity: "b"}, h)

		election.SetUnavailable(context.DeadlineExceeded)
		bubble.Sleep(time.Minute)
		for _, e := range []*leader.Elector{a, b} {
			for path, want := range map[string]int{"/leader": http.StatusServiceUnavailable, "/readyz": http.StatusOK, "/livez": http.StatusOK} {
				code, _ = probe(t, e, path)
				assert.Equal(t, want, code, "%s of %s without its database", path, e.Config().Identity)
			}
			require.NoError(t, e.Shutdown(t.Context()))
			code, _ = probe(t, e, "/readyz")
			assert.Equal(t, http.StatusServiceUnavailable, code, "stopped")
		}
	})
}

func TestLivezFailsWhenTheLoopHangs(t *testing.T) {
	t.Parallel()
	e := node(t, leadertest.NewElection().Backend(), "a")
	for busy, want := range map[time.Duration]int{
		0: http.StatusOK, time.Second: http.StatusOK, 14 * time.Second: http.StatusOK,
		16 * time.Second: http.StatusServiceUnavailable, // the lease is 15 s
	} {
		e.SetBusyFor(busy)
		code, _ := probe(t, e, "/livez")
		assert.Equal(t, want, code, busy)
		code, _ = probe(t, e, "/readyz")
		assert.Equal(t, http.StatusServiceUnavailable, code, "that is another question")
	}
}

func TestHandlerAnswersGetAndHeadOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.StripPrefix("/election", node(t, leadertest.NewElection().Backend(), "a").Handler()))
	defer server.Close()
	for method, want := range map[string]int{
		http.MethodGet: http.StatusOK, http.MethodHead: http.StatusOK,
		http.MethodPost: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusMethodNotAllowed,
	} {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/election/livez", http.NoBody)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, response.StatusCode, method)
		if want == http.StatusMethodNotAllowed {
			assert.Equal(t, "GET, HEAD", response.Header.Get("Allow"))
		}
	}
}
