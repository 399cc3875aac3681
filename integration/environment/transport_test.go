//go:build integration

package environment

import (
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

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
)

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
