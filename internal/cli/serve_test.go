package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// serve starts serve locks, and returns its address.
func serve(t *testing.T, env []string, args ...string) (*program, string) {
	t.Helper()
	p := start(t, env, append([]string{"serve", "locks", "--listen", "127.0.0.1:0"}, args...)...)
	p.saying(&p.stderr, "msg=serving")
	return p, regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.stderr.String())[1]
}

func TestServeLocksNeedsNothingAndForgetsNothing(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	env := []string{"XDG_STATE_HOME=" + state}
	acquire := func(address string) leaseAnswer {
		stdout, stderr, code := run(t, nil, "lease", "acquire", "job", "--ttl", "50ms", "--wait", "10s", "-o", "json", "--server", "http://"+address)
		require.Zero(t, code, stderr)
		return decode[leaseAnswer](t, stdout)
	}
	server, address := serve(t, env)
	assert.FileExists(t, filepath.Join(state, "pglatch", "locks.db"))
	assert.Equal(t, uint64(1), acquire(address).FencingToken)
	_, stderr, code := run(t, env, "serve", "locks", "--listen", "127.0.0.1:0")
	assert.Equal(t, 69, code, "a file has one server: %s", stderr)
	server.signal(syscall.SIGKILL)
	assert.Equal(t, 137, server.wait())
	server, address = serve(t, env)
	assert.Greater(t, acquire(address).FencingToken, uint64(1))
	server.signal(syscall.SIGTERM)
	assert.Zero(t, server.wait(), server.stderr.String())
}

func TestServeLocksOnPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, one := serve(t, at(dsn), "--store", "postgres")
	_, two := serve(t, nil, "--store", dsn)
	_, stderr, code := run(t, nil, "lease", "acquire", "job", "--owner", "a", "--server", "http://"+one)
	require.Zero(t, code, stderr)
	_, stderr, code = run(t, nil, "lease", "acquire", "job", "--owner", "b", "--server", "http://"+two)
	assert.Equal(t, 75, code, "two servers, one database: %s", stderr)
}

func TestServeLocksMisuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short, long := filepath.Join(dir, "short"), filepath.Join(dir, "long")
	require.NoError(t, os.WriteFile(short, []byte("s3cret\n"), 0o600))
	require.NoError(t, os.WriteFile(long, []byte("s3cret-s3cret-s3cret\n"), 0o600))
	for args, want := range map[string]string{
		"serve":                                                    "Usage",
		"serve bogus":                                              "unknown command",
		"serve locks --store bogus:s3cret":                         "--store is none of",
		"serve locks --durability some":                            "--durability is",
		"serve locks --listen 0.0.0.0:0":                           "--auth-token-file",
		"serve locks --auth-token-file " + short:                   "16",
		"serve locks --store postgres --durability some":           "--durability is",
		"serve locks --store postgres --durability relaxed":        "--durability relaxed is for SQLite",
		"lease acquire n --wait -1s":                               "--wait is -1s",
		"serve locks --auth-token-file /dev/null":                  "has no token",
		"serve locks --auth-token-file /no/such/file":              "no such file",
		"serve locks --insecure-no-tls":                            "--auth-token-file",
		"serve locks --tls-cert /no/such/file":                     "--tls-cert",
		"serve locks --sweep-interval 0s":                          "--sweep-interval",
		"serve locks --store postgres --max-conns 0":               "--max-conns",
		"serve locks --listen 0.0.0.0:0 --auth-token-file " + long: "--tls-cert",
		"serve locks --insecure-no-auth --auth-token-file " + long: "--insecure-no-auth lets everybody in",
		"lease acquire":                                            "give one NAME",
		"lease acquire n --ttl 1ns":                                "TTL",
		"lease acquire n --server ftp://x":                         "--server",
		"lease renew n":                                            "--lease-id",
		"lease run n":                                              "give the command",
		"lease run n --kill-after 9s -- true":                      "--kill-after 9s + 300ms for the signals to act + 1.5s",
		"lease run n --ttl 40ms -- true":                           "of --ttl 40ms",
		"lease run n --ttl 30s --kill-after 20s -- true":           "shorten --kill-after, or lengthen --ttl",
		"lease run n --ttl 1ns -- true":                            "TTL",
		"lease list --limit -1":                                    "Limit",
		"load --target moon":                                       "--target",
		"load --clients 0":                                         "--clients",
		"load --locks 0":                                           "--locks",
		"load --expire 99 --heartbeats 2":                          "--heartbeats",
		"serve locks --store sqlite://foo.db":                      "say sqlite:foo.db",
		"serve locks --store sqlite::memory:":                      "is no file",
		"load --server http://x --store sqlite:x":                  "none of the others can be",
	} {
		stdout, stderr, code := run(t, []string{"XDG_STATE_HOME=" + dir, "PGLATCH_DATABASE_URL=" + nowhere}, strings.Fields(args)...)
		if args == "serve" {
			assert.Contains(t, stdout, want)
			continue
		}
		assert.Equal(t, 64, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want, args)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		assert.NotContains(t, stderr, "s3cret", args)
	}
	_, stderr, code := run(t, []string{"HOME="}, "serve", "locks")
	assert.Equal(t, 64, code, stderr)
	assert.Contains(t, stderr, "--store sqlite:FILE")
}

func TestServeLocksWithoutItsStoreOrAddressEndsWith69(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, args := range []string{
		"--store " + nowhere,
		"--store sqlite:" + filepath.Join(dir, "no", "such", "dir.db"),
		"--store sqlite:" + garbage,
		"--store sqlite:" + filepath.Join(dir, "ok.db") + " --listen " + taken.Addr().String(),
	} {
		_, stderr, code := run(t, nil, append([]string{"serve", "locks"}, strings.Fields(args)...)...)
		assert.Equal(t, 69, code, "%s: %s", args, stderr)
		assert.NotContains(t, stderr, "s3cret")
	}
}

func TestServeLocksToOthersWithTokensAndTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key, tokens := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "tokens")
	writeCertificate(t, certificate, key)
	require.NoError(t, os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600))
	p := start(t, nil, "serve", "locks", "--listen", "0.0.0.0:0", "--store", "sqlite:"+filepath.Join(dir, "l.db"),
		"--auth-token-file", tokens, "--tls-cert", certificate, "--tls-key", key)
	p.saying(&p.stderr, "msg=serving")
	port := regexp.MustCompile(`address=\S+:(\d+)`).FindStringSubmatch(p.stderr.String())[1]
	list := []string{"lease", "list", "--server", "https://127.0.0.1:" + port}
	_, stderr, code := run(t, nil, append(list, "--auth-token-file", tokens, "--tls-ca", certificate)...)
	assert.Zero(t, code, stderr)
	_, stderr, code = run(t, nil, append(list, "--auth-token-file", tokens)...)
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "certificate")
	_, stderr, code = run(t, nil, append(list, "--tls-ca", certificate)...)
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "denies access")
}

func TestServeLocksToEverybodySaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "locks", "--listen", "0.0.0.0:0", "--insecure-no-auth", "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
	p.saying(&p.stderr, "level=WARN msg=\"EVERYBODY")
	p.signal(syscall.SIGTERM)
	assert.Zero(t, p.wait())
}

// writeCertificate makes one for 127.0.0.1 that vouches for itself.
func writeCertificate(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), NotBefore: time.Now().Add(-time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
