package leasecmd_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
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

func TestALeaseIsEndedInTheStoreWithoutALockServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	force := func(dsn, name string) (stdout, stderr string, code int) {
		return clitest.Run(t, clitest.At(dsn), "lease", "force-release", name, "--store", "postgres", "--reason", "its host is gone")
	}
	_, stderr, code := force(dsn, "job")
	assert.Equal(t, 69, code, "there is no store yet")
	assert.Contains(t, stderr, "pglatch_lease")
	store, err := postgres.New(postgres.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	_, stderr, code = force(dsn, "job")
	assert.Equal(t, 3, code, stderr)
	const name = `job//"x"%2F|'; --`
	for _, delay := range []time.Duration{0, time.Hour} {
		held, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "web-3", TTL: time.Hour, LockDelay: delay})
		require.NoError(t, err)
		stdout, stderr, code := force(dsn, name)
		require.Zero(t, code, stderr)
		assert.Contains(t, stdout, "ended the lease of web-3 on "+name)
		assert.Contains(t, stderr, "msg=lease_force_released outcome=released by=\"database role ")
		_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Hour})
		require.ErrorIs(t, err, lease.ErrStale)
	}
	_, _, code = force(dsn, name)
	assert.Equal(t, 75, code, "the lock delay of the second lease keeps the lock, as at a lock server")

	server := pgtest.StartServer(t, pgserver.Options{})
	admin := clitest.Connect(t, server.DSN(""), "test")
	clitest.Execute(t, admin, "CREATE ROLE reader LOGIN")
	own, err := postgres.New(postgres.Config{DSN: server.DSN("")})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	require.NoError(t, own.Migrate(t.Context()))
	clitest.Execute(t, admin, "GRANT USAGE ON SCHEMA pglatch_lease TO reader")
	held, err := own.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "web-3", TTL: time.Hour})
	require.NoError(t, err)
	_, stderr, code = force(pgtest.As(t, server.DSN(""), "reader"), "job")
	assert.Equal(t, 69, code, stderr)
	assert.Contains(t, stderr, "GRANT")
	_, err = own.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Hour})
	require.NoError(t, err, "without the right, nothing is done")
}
