//go:build integration

package environment

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/namespace"
)

// requireEverythingWorks uses a path to the server in all the ways that depend on
// it. The connection goes straight to the same database.
func requireEverythingWorks(t *testing.T, dsn string, direct *pgx.Conn) {
	t.Helper()
	a, b := open(t, advisory.Config{DSN: dsn, ApplicationName: "holder"}), open(t, advisory.Config{DSN: dsn})
	requireExclusion(t, a, b, direct)
	requireCancel(t, a, b, direct)

	all, err := a.AcquireAll(t.Context(), agents.ID(3), agents.ID(1), agents.ID(2))
	require.NoError(t, err)
	requireLocks(t, direct, 3, 0)
	_, err = b.TryAcquire(t.Context(), agents.ID(2))
	require.ErrorIs(t, err, advisory.ErrHeld)
	require.NoError(t, all.Release())
	requireLocks(t, direct, 0, 0)

	lock := acquire(t, a, agents.ID(1))
	execute(t, direct, "SELECT pg_terminate_backend($1)", pidOf(t, a))
	requireLost(t, lock)
	require.NoError(t, acquire(t, b, agents.ID(1)).Release())
	require.NoError(t, acquire(t, a, agents.ID(1)).Release())
	requireLocks(t, direct, 0, 0)
}

func requireExclusion(t *testing.T, a, b *advisory.Locker, direct *pgx.Conn) {
	t.Helper()
	err := a.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
		requireLocks(t, direct, 1, 0)
		holder := requireHeld(t, b, agents.ID(1))
		require.Equal(t, pidOf(t, a), holder.PID)
		require.Equal(t, "holder", holder.ApplicationName)
		return ctx.Err()
	})
	require.NoError(t, err)
	requireLocks(t, direct, 0, 0)

	lock := acquire(t, a, agents.ID(1))
	waiting := wait(t.Context(), b, agents.ID(1))
	requireLocks(t, direct, 1, 1)
	require.NoError(t, lock.Release())
	next := receive(t, waiting)
	require.NoError(t, next.err)
	require.NoError(t, next.lock.Release())
	requireLocks(t, direct, 0, 0)
}

// requireHeld tries a lock that another process holds, and returns who that is.
func requireHeld(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Holder {
	t.Helper()
	var held *advisory.HeldError
	await.Until(t, patience, func() bool { // a busy machine does not always say who
		_, err := l.TryAcquire(t.Context(), key)
		require.ErrorAs(t, err, &held)
		return held.Holder != nil
	}, "the error names nobody")
	return held.Holder
}

func requireCancel(t *testing.T, a, b *advisory.Locker, direct *pgx.Conn) {
	t.Helper()
	lock := acquire(t, a, agents.ID(1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := wait(ctx, b, agents.ID(1))
	requireLocks(t, direct, 1, 1)
	cancel()
	require.ErrorIs(t, receive(t, waiting).err, context.Canceled)
	requireLocks(t, direct, 1, 0)
	require.NoError(t, lock.Release())
	requireLocks(t, direct, 0, 0)
}

// pidOf returns the backend that holds the Locker's only lock.
func pidOf(t *testing.T, l *advisory.Locker) uint32 {
	t.Helper()
	for held := range l.Held() {
		return held.PID
	}
	require.Fail(t, "nothing is held")
	return 0
}

const patience = await.Patience

var agents = namespace.Must(1, "agent")

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }

// open opens a Locker of the test's mode that is closed at the end of the test.
func open(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	config.Wait = patience
	l, err := advisory.Open(t.Context(), lockmode.Of(t).Config(config))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func acquire(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	return lock
}

// An outcome is what Acquire returned.
type outcome struct {
	lock *advisory.Lock
	err  error
}

// wait acquires in the background. The channel has room, so that nobody needs to
// receive from it.
func wait(ctx context.Context, l *advisory.Locker, key namespace.Key) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lock, err := l.Acquire(ctx, key)
		done <- outcome{lock, err}
	}()
	return done
}

func receive(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	return await.Receive(t, patience, done, "the wait did not end")
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// requireLocks waits until the connection's database has so many advisory locks,
// granted and waited for.
func requireLocks(t *testing.T, conn *pgx.Conn, granted, waiting int) {
	t.Helper()
	await.Until(t, patience, func() bool {
		g, w, err := pgtest.CountLocks(context.Background(), conn, agents.ID(1))
		return err == nil && g == granted && w == waiting
	}, "%d granted and %d waiting", granted, waiting)
}

// requireLost waits for the loss of a lock.
func requireLost(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	ctx := lock.Context()
	await.Receive(t, patience, ctx.Done(), "the loss was not noticed")
	var lost *advisory.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	require.ErrorIs(t, lock.Release(), advisory.ErrLost)
}

func TestEverythingWorksOverAUnixSocket(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", server.SocketDir(), server.Port())
		requireEverythingWorks(t, dsn, pgtest.Connect(t, server.DSN("")))

		a, b := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn})
		lock := acquire(t, a, agents.ID(1))
		require.Empty(t, requireHeld(t, b, agents.ID(1)).ClientAddr, "a Unix socket has no address")
		require.NoError(t, lock.Release())
	})
}

func TestEverythingWorksOverTLS(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		certificate, key := selfSigned(t)
		dir := service.Dir(t, map[string][]byte{"cert.pem": certificate, "key.pem": key})
		server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
			"ssl": "on", "ssl_cert_file": dir + "/cert.pem", "ssl_key_file": dir + "/key.pem",
		}})
		dsn := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=verify-full sslrootcert=%s/cert.pem", server.Port(), dir)
		direct := pgtest.Connect(t, server.DSN(""))
		requireEverythingWorks(t, dsn, direct)

		locker := open(t, advisory.Config{DSN: dsn})
		lock := acquire(t, locker, agents.ID(1))
		var encrypted bool
		require.NoError(t, direct.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = $1", pidOf(t, locker)).Scan(&encrypted))
		require.True(t, encrypted)
		require.NoError(t, lock.Release())
	})
}

// selfSigned makes a certificate for 127.0.0.1.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}
