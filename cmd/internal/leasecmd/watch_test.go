package leasecmd_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestLeaseGetWaitsForAChange(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	env := []string{"PGLATCH_LOCK_SERVER=" + h.URL}
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	get := func(flags ...string) *clitest.Program {
		servetest.AwaitWaiters(t, s, 0) // the server counts the one before until a moment after its answer
		p := clitest.Start(t, env, append([]string{"lease", "get", "job", "--wait", "5m", "-o", "json"}, flags...)...)
		servetest.AwaitWaiters(t, s, 1)
		return p
	}
	p := get("--index", "0")
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	require.Zero(t, p.Wait(), p.Stderr.String())
	held := clitest.Decode[version](t, p.Stdout.String())
	assert.Equal(t, "a", held.OwnerID)

	p = get() // from what is
	_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: servetest.Long})
	require.NoError(t, err)
	require.Zero(t, p.Wait(), p.Stderr.String())
	renewed := clitest.Decode[version](t, p.Stdout.String())
	assert.Greater(t, renewed.Version, held.Version)

	p = get("--index", strconv.FormatUint(renewed.Version, 10))
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	assert.Equal(t, 3, p.Wait(), p.Stderr.String())
	assert.Equal(t, "FREE", clitest.Decode[version](t, p.Stdout.String()).State)

	p = get()
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.Wait())
	assert.Empty(t, p.Stdout.String())
}

// A version is of a lease as the program prints it.
type version struct {
	clitest.LeaseAnswer
	Version uint64 `json:"version"`
}

func TestLeaseGetShowsWhatIsWhenNothingChangesInTheTimeOrSomethingDidBefore(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, leasetest.NewStore())
	_, stderr, code := clitest.Run(t, env, "lease", "get", "job", "--wait", "50ms")
	assert.Equal(t, 3, code)
	assert.Contains(t, stderr, "nothing known of job")
	_, _, code = clitest.Run(t, env, "lease", "acquire", "job", "--owner", "a")
	require.Zero(t, code)
	for _, flags := range []string{"--wait 50ms", "--wait 5m --index 0", "--wait 0s"} {
		stdout, stderr, code := clitest.Run(t, env, append([]string{"lease", "get", "job"}, strings.Fields(flags)...)...)
		assert.Zero(t, code, "%s: %s", flags, stderr)
		assert.Contains(t, stdout, "HELD", flags)
	}
}

func TestLeaseGetFollowsALockOverARestartOfTheServer(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	address := clitest.Reserve(t)
	server, _ := clitest.Serve(t, nil, "--store", store, "--listen", address)
	env := []string{"PGLATCH_LOCK_SERVER=http://" + address}
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{"http://" + address}})
	p := clitest.Start(t, env, "lease", "get", "job", "--follow", "-o", "json")
	text := clitest.Start(t, env, "lease", "get", "job", "-f", "--index", "0") // not what it knows
	p.Saying(&p.Stdout, `"state":"FREE"`)
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	p.Saying(&p.Stdout, `"state":"HELD"`)
	text.Saying(&text.Stdout, "job HELD a, token 1, version ")

	server.Signal(syscall.SIGKILL)
	server.Wait()
	p.Saying(&p.Stderr, "trying again")
	text.Saying(&text.Stderr, "trying again")
	clitest.Serve(t, nil, "--store", store, "--listen", address)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	p.Saying(&p.Stdout, `"version":2`)
	text.Saying(&text.Stdout, "job FREE a, token 1, version ")
	for _, p := range []*clitest.Program{p, text} {
		p.Signal(syscall.SIGTERM)
		assert.Zero(t, p.Wait())
		assert.Equal(t, 1, strings.Count(p.Stderr.String(), "\n"), "one outage, one line: %s", p.Stderr.String())
	}
	lines := clitest.DecodeLines[version](t, p.Stdout.String())
	require.Len(t, lines, 3, "one for each change: %s", p.Stdout.String())
	assert.Zero(t, lines[0].Version)
	assert.Equal(t, 2, strings.Count(text.Stdout.String(), "\n"), text.Stdout.String())
}

func TestLeaseGetFollowsALockAtTheNextServer(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: pair.urls[1:]})
	p := clitest.Start(t, nil, "lease", "get", "job", "-f", "-o", "jsonl", "--server", strings.Join(pair.urls, ","))
	p.Saying(&p.Stdout, `"state":"FREE"`)
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	p.Saying(&p.Stdout, `"state":"HELD"`)
	pair.first.Signal(syscall.SIGKILL)
	pair.first.Wait()
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	clitest.Eventually(t, func() bool { return strings.Count(p.Stdout.String(), `"state":"FREE"`) == 2 }, func() string { return p.Stdout.String() + p.Stderr.String() })
	p.Signal(syscall.SIGINT)
	assert.Zero(t, p.Wait())
	assert.Empty(t, p.Stderr.String(), "the next server was asked at once")
}

func TestLeaseGetDoesNotWaitForWhatNoTimeMends(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: "0123456789abcdef"}}})
	for _, flag := range []string{"--wait=5m", "--follow"} {
		_, stderr, code := clitest.Run(t, nil, "lease", "get", "job", flag, "--server", h.URL)
		assert.Equal(t, 77, code)
		assert.Contains(t, stderr, "denies access")
	}
}
