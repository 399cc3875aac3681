//go:build unix

package servecmd_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

// aSocket is a path that is short enough for one.
func aSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch") //nolint:usetesting // with the name of a test it can be too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func TestServeLocksAtASocketAnswersWhoMayWriteToIt(t *testing.T) {
	t.Parallel()
	socket := aSocket(t)
	p := clitest.Start(t, nil, "serve", "locks", "--listen", "unix:"+socket, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
	p.Saying(&p.Stderr, "msg=serving address=unix:"+socket)
	info, err := os.Lstat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())
	for _, server := range []string{"unix:" + socket, "unix://" + socket} {
		_, stderr, code := clitest.Run(t, []string{"PGLATCH_LOCK_SERVER=" + server}, "lease", "run", "job", "--", "true")
		assert.Zero(t, code, stderr)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	get := func(target string, header ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://any.example"+target, nil)
		require.NoError(t, err)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := client.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		return response.StatusCode
	}
	for target, want := range map[string]int{"/healthz": 204, "/readyz": 204, "/metrics": 200, "/v1/locks": 200} {
		assert.Equal(t, want, get(target), target)
	}
	assert.Equal(t, 403, get("/v1/locks", "X-Forwarded-For", "192.0.2.1"), "a proxy lets others in")
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait(), p.Stderr.String())
	assert.NoFileExists(t, socket)

	other, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket) // of a program without our lock
	require.NoError(t, err)
	_, stderr, code := clitest.Run(t, nil, "serve", "locks", "--listen", "unix:"+socket, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "has another server")
	require.FileExists(t, socket)
	require.NoError(t, other.Close())
}
