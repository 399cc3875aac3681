package leasecmd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

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
