package leasecmd_test

import (
	"strconv"
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
