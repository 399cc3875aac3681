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

func serveAt(t *testing.T, socket string, args ...string) *clitest.Program {
	t.Helper()
	p := clitest.Start(t, nil, append([]string{"serve", "locks", "--listen", "unix:" + socket, "--store", "sqlite:" + filepath.Join(t.TempDir(), "l.db")}, args...)...)
	p.Saying(&p.Stderr, "msg=serving address=unix:"+socket)
	return p
}

func TestServeLocksAtASocketAnswersWhoMayWriteToIt(t *testing.T) {
	t.Parallel()
	socket := aSocket(t)
	p := serveAt(t, socket)
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
}

func TestServeLocksTakesTheSocketOfAServerThatWasKilledAndOfNoOther(t *testing.T) {
	t.Parallel()
	socket := aSocket(t)
	refused := func(says string) {
		t.Helper()
		_, stderr, code := clitest.Run(t, nil, "serve", "locks", "--listen", "unix:"+socket, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
		assert.Equal(t, 69, code, stderr)
		assert.Contains(t, stderr, says)
	}
	list := func() int {
		_, stderr, code := clitest.Run(t, nil, "lease", "list", "--server", "unix:"+socket)
		t.Log(stderr)
		return code
	}
	first := serveAt(t, socket)
	refused("has another server")
	require.Zero(t, list(), "the first one still answers")
	first.Signal(syscall.SIGKILL)
	first.Wait()
	require.FileExists(t, socket)
	require.Equal(t, 69, list())
	second := serveAt(t, socket, "--socket-mode", "0660")
	require.Zero(t, list())
	info, err := os.Lstat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o660, info.Mode())
	second.Signal(syscall.SIGTERM)
	require.Zero(t, second.Wait())

	require.NoError(t, os.WriteFile(socket, []byte("a file"), 0o600))
	refused("and no socket")
	require.FileExists(t, socket)
	require.NoError(t, os.Remove(socket))
	other, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket) // of a program without our lock
	require.NoError(t, err)
	refused("has another server")
	require.FileExists(t, socket)
	require.NoError(t, other.Close())
}

func TestServeLocksAtASocketStillAsksForTokensIfItHasSome(t *testing.T) {
	t.Parallel()
	socket, tokens := aSocket(t), filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("0123456789abcdef name=ops\n"), 0o600))
	p := serveAt(t, socket, "--auth-token-file", tokens)
	_, stderr, code := clitest.Run(t, nil, "lease", "list", "--server", "unix:"+socket)
	assert.Equal(t, 77, code)
	assert.Contains(t, stderr, "denies access")
	for _, args := range [][]string{{"acquire", "job", "--owner", "a"}, {"force-release", "job", "--reason", "x"}} {
		_, stderr, code = clitest.Run(t, nil, append(append([]string{"lease"}, args...), "--server", "unix:"+socket, "--auth-token-file", tokens)...)
		assert.Zero(t, code, stderr)
	}
	p.Saying(&p.Stderr, "by=ops from=unix lock=job")
}
