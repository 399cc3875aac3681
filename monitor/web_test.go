package monitor_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
)

func TestThePageShowsALockThatIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	lock(t, clitest.Connect(t, dsn, "holder"), agents.ID(42))
	m := open(t, monitor.Config{DSN: dsn})
	w := get(t, m.Page(), "/locks/")
	require.Equal(t, http.StatusOK, w.Code)
	assertSecurityHeaders(t, w.Header())
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'")
	for _, want := range []string{"agent/42", "holder", "≥", "Nothing is wrong"} {
		assert.Contains(t, w.Body.String(), want)
	}
	for _, asset := range []string{"page.css", "page.js"} {
		assert.Equal(t, http.StatusOK, get(t, m.Page(), "/locks/"+asset).Code)
	}
}

func TestThePageIsNotForOtherHosts(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: "postgres://localhost:1/nowhere"})
	for _, target := range []string{"/", "/page.js", "/live", "/metrics", "/verdicts", "/at"} {
		r := request(t, http.MethodGet, target)
		r.RemoteAddr = "192.0.2.1:50000"
		w := httptest.NewRecorder()
		m.Page().ServeHTTP(w, r)
		requireProblem(t, w, http.StatusForbidden, "only this host may look")
	}
}

func TestThePageOfADatabaseThatDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: "postgres://localhost:1/nowhere"})
	w := get(t, m.Page(), "/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "The database does not answer")
	assert.NotContains(t, w.Body.String(), "nowhere")
}

func TestAConfigThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, config := range []monitor.Config{{Record: -1}, {LongHold: -1}} {
		config.DSN = "postgres://localhost/x"
		_, err := monitor.Open(config)
		var wrong *monitor.ConfigError
		require.ErrorAs(t, err, &wrong)
	}
}

func TestEachVerdictIsExplained(t *testing.T) {
	t.Parallel()
	var docs []byte
	for _, page := range []string{"incidents.md", "incidents-of-turns.md"} {
		text, err := os.ReadFile("../docs/how-to/" + page)
		require.NoError(t, err)
		docs = append(docs, text...)
	}
	for _, name := range monitor.VerdictNames() {
		assert.Contains(t, string(docs), "\n## "+name+"\n")
	}
}
