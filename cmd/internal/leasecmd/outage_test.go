package leasecmd_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestAnOutageOfPostgreSQLIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	server, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), server.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(dsn)
	require.NoError(t, err)
	_, address := clitest.Serve(t, nil, "--store", through)
	ttl := "3s" // what was sent into the silence can be carried out after it
	acquire := func(owner, wait string) *clitest.Program {
		return clitest.Start(t, nil, "lease", "acquire", "cron", "--ttl", ttl, "--owner", owner, "-w", wait, "--server", "http://"+address)
	}
	control := clitest.Start(t, nil, "lease", "run", "other", "--server", "http://"+address, "--", "true")
	require.Zero(t, control.Wait(), control.Stderr.String())
	proxy.Set(faultproxy.Hold)
	var all []*clitest.Program
	for _, owner := range []string{"first", "second", "third"} {
		all = append(all, acquire(owner, "1s"), acquire(owner, "0s"))
	}
	for _, p := range all {
		assert.Equal(t, 69, p.Wait(), p.Stderr.String())
		assert.NotContains(t, p.Stderr.String(), "held by")
	}
	proxy.Set(faultproxy.Pass)
	ttl = "1m"
	after := acquire("after", "25s")
	require.Zero(t, after.Wait(), "nobody had it: %s", after.Stderr.String())
	held := acquire("control", "0s")
	require.Equal(t, 75, held.Wait(), "now somebody has it: %s", held.Stderr.String())
}

// A full store can do nothing now.
type full struct{ lease.Store }

func (full) Acquire(context.Context, lease.AcquireRequest) (lease.Lease, error) {
	return lease.Lease{}, &lease.BusyError{Retry: 10 * time.Millisecond, Cause: errors.New("disk full")}
}

func TestAStoreThatCanDoNothingIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, full{leasetest.NewStore()})
	for _, args := range []string{"lease acquire job", "lease acquire job -w 100ms", "lease run job -n -- true", "lease run job -w 100ms -- true"} {
		_, stderr, code := clitest.Run(t, env, strings.Fields(args)...)
		assert.Equal(t, 69, code, "%s: %s", args, stderr)
	}
}

func TestACommandWaitsForALockServerThatRestarts(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"lease run job -w 25s -- true", "lease run job -- true", "lease acquire job -w 25s"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			address := clitest.Reserve(t)
			p := clitest.Start(t, []string{"PGLATCH_LOCK_SERVER=http://" + address}, strings.Fields(args)...)
			p.Saying(&p.Stderr, "trying again")
			server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
			require.NoError(t, err)
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
			require.NoError(t, err)
			served := make(chan error, 1)
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			go func() { served <- server.Serve(ctx, listener) }()
			defer func() { stop(); assert.NoError(t, <-served) }()
			require.Zero(t, p.Wait(), p.Stderr.String())
		})
	}
}

// A connection that is taken and never answered, as by a server that hangs, is waited
// for as long as the caller said, and not for the client's own time, 20 s.
func TestALockServerThatAcceptsAndNeverAnswersIsWaitedForAsLongAsToldAndNoLonger(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // its queue takes connections
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	env := []string{"PGLATCH_LOCK_SERVER=http://" + listener.Addr().String()}
	for _, args := range []string{"lease acquire job -w 1s", "lease run job -w 1s -- true"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, stderr, code := clitest.Run(t, env, strings.Fields(args)...)
			assert.Equal(t, 69, code, stderr)
			assert.Contains(t, stderr, "no answer in time")
			assert.Less(t, time.Since(begun), 15*time.Second)
		})
	}
}

func TestACommandDoesNotWaitForWhatNoRestartMends(t *testing.T) {
	t.Parallel()
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{{Secret: "0123456789abcdef"}}})
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: await.Soon}
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()
	defer func() { _ = h.Close(); <-served }()
	p := clitest.Start(t, nil, "lease", "run", "job", "--server", "http://"+listener.Addr().String(), "--", "true")
	assert.Equal(t, 77, p.Wait())
	assert.Contains(t, p.Stderr.String(), "denies access")
	assert.NotContains(t, p.Stderr.String(), "trying again")
}

func TestTheCommandOfALeaseDoesNotGetTheServersToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{{Secret: token}}})
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: await.Soon}
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()
	defer func() { _ = h.Close(); <-served }()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	env := []string{"PGLATCH_LOCK_SERVER=http://" + listener.Addr().String(), "PGLATCH_LOCK_TOKEN=" + token}
	for _, args := range [][]string{
		{"lease", "run", "job", "-c", "env"},
		{"leader", "run", "job", "--backend", "lease", "-c", "env"},
	} {
		stdout, stderr, code := clitest.Run(t, env, args...)
		require.Zero(t, code, "%v: %s", args, stderr)
		assert.Contains(t, stdout, "PGLATCH_LOCK_SERVER=")
		assert.NotContains(t, stdout, token, args)
	}
}
