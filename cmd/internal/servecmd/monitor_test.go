package servecmd_test

import (
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestServeMonitorShowsWhoHoldsAKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := clitest.Start(t, clitest.At(dsn), "run", "--namespace", "agent=1", "agent/42", "--", "sleep", "600")
	server := clitest.Start(t, clitest.At(dsn), "serve", "monitor", "--listen", "127.0.0.1:0")
	server.Saying(&server.Stderr, "msg=serving")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(server.Stderr.String())[1]
	var body string
	clitest.Eventually(t, func() bool {
		var status int
		status, body = page(t, address, "/")
		return status == http.StatusOK && strings.Contains(body, "agent/42")
	}, func() string { return body })
	for path, want := range map[string]string{
		"/metrics": `pglatch_verdict{name="deadlock"} 0`, "/verdicts": `"verdicts":[`, "/api/advisory-locks": `"total":1`, "/page.js": "EventSource",
	} {
		status, body := page(t, address, path)
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, body, want, path)
	}
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait(), server.Stderr.String())
	holder.Signal(syscall.SIGTERM)
	holder.Wait()
}

func TestServeMonitorMisuse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"serve monitor --listen 0.0.0.0:0": "use a loopback address",
		"serve monitor --record -1s":       "--record is -1s",
		"serve monitor --long-hold 0s":     "--long-hold is 0s",
	} {
		_, stderr, code := clitest.Run(t, []string{"PGLATCH_DATABASE_URL=" + clitest.Nowhere}, strings.Fields(args)...)
		assert.Equal(t, 64, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want)
		require.NotContains(t, stderr, "s3cret")
	}
}
