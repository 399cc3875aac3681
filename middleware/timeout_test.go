package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// overstay is a handler that goes on after its timeout until it is let go.
func overstay(began chan<- struct{}, end <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-end
	})
}

// skipping is a lock on one key that does not wait.
func skipping(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	return middleware.Must(middleware.Config{Locker: locker, Skip: true, Key: func(*http.Request) (namespace.Key, error) {
		return agents.ID(42), nil
	}})
}

// answer is the status of one request.
func answer(t *testing.T, h http.Handler) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	return w.Code
}

// In a bubble the time is not over before the handler waits.
func TestTheLockIsHeldUntilAHandlerThatIsOverItsTimeHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}, 1), make(chan struct{})
		lock := skipping(t)
		h := http.TimeoutHandler(lock(overstay(began, end)), time.Millisecond, "")
		assert.Equal(t, http.StatusServiceUnavailable, answer(t, h))
		<-began
		second := lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "it runs beside the first") }))
		assert.Equal(t, http.StatusLocked, answer(t, second))
		close(end)
	})
}

func TestATimeoutInsideTheLockIsRefusedAtWiring(t *testing.T) {
	t.Parallel()
	lock := skipping(t)
	assert.PanicsWithValue(t, "middleware: the lock is around an http.TimeoutHandler, which returns while its handler runs on, without the lock: "+
		"put it outside, as in http.TimeoutHandler(lock(handler), …)", func() { lock(http.TimeoutHandler(http.NotFoundHandler(), time.Second, "")) })
}

// What the refusal is for: behind another handler it is not found, and two handlers run.
func TestATimeoutInsideTheLockLetsTwoHandlersRunControl(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}, 2), make(chan struct{})
		defer close(end)
		timeout := http.TimeoutHandler(overstay(began, end), time.Millisecond, "")
		h := skipping(t)(http.HandlerFunc(timeout.ServeHTTP))
		for range 2 {
			assert.Equal(t, http.StatusServiceUnavailable, answer(t, h))
		}
		<-began
		<-began
	})
}
