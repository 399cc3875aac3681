package problem_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/problem"
)

func TestAProblemTellsWhenToTryAgainInWholeSeconds(t *testing.T) {
	t.Parallel()
	for retry, want := range map[time.Duration]string{0: "", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Content-Type", "text/html")
		problem.Write(w, http.StatusLocked, retry, map[string]int{"status": http.StatusLocked})
		assert.Equal(t, http.StatusLocked, w.Code)
		assert.Equal(t, want, w.Header().Get("Retry-After"), retry)
		assert.Empty(t, w.Header().Get("Content-Length"), "it was that of another body")
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.JSONEq(t, `{"status":423}`, w.Body.String())
	}
}
