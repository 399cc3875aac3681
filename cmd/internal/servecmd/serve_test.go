package servecmd_test

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

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestServeLocksNeedsNothingAndForgetsNothing(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	env := []string{"XDG_STATE_HOME=" + state}
	acquire := func(address string) clitest.LeaseAnswer {
		stdout, stderr, code := clitest.Run(t, nil, "lease", "acquire", "job", "--ttl", "1s", "--wait", "20s", "-o", "json", "--server", "http://"+address)
		require.Zero(t, code, stderr)
		return clitest.Decode[clitest.LeaseAnswer](t, stdout)
	}
	server, address := clitest.Serve(t, env)
	assert.FileExists(t, filepath.Join(state, "pglatch", "locks.db"))
	assert.Equal(t, uint64(1), acquire(address).FencingToken)
	_, stderr, code := clitest.Run(t, env, "serve", "locks", "--listen", "127.0.0.1:0")
	assert.Equal(t, 69, code, "a file has one server: %s", stderr)
	server.Signal(syscall.SIGKILL)
	assert.Equal(t, 137, server.Wait())
	server, address = clitest.Serve(t, env)
	assert.Greater(t, acquire(address).FencingToken, uint64(1))
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait(), server.Stderr.String())
}

func TestServeLocksOnPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, one := clitest.Serve(t, clitest.At(dsn), "--store", "postgres")
	_, two := clitest.Serve(t, nil, "--store", dsn)
	_, stderr, code := clitest.Run(t, nil, "lease", "acquire", "job", "--owner", "a", "--server", "http://"+one)
	require.Zero(t, code, stderr)
	_, stderr, code = clitest.Run(t, nil, "lease", "acquire", "job", "--owner", "b", "--server", "http://"+two)
	assert.Equal(t, 75, code, "two servers, one database: %s", stderr)
}

func TestServeLocksMisuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short, long := filepath.Join(dir, "short"), filepath.Join(dir, "long")
	require.NoError(t, os.WriteFile(short, []byte("s3cret\n"), 0o600))
	require.NoError(t, os.WriteFile(long, []byte("s3cret-s3cret-s3cret\n"), 0o600))
	root, more := filepath.Join(dir, "root"), filepath.Join(dir, "more")
	require.NoError(t, os.WriteFile(root, []byte("s3cret-s3cret-s3cret right=root\n"), 0o600))
	require.NoError(t, os.WriteFile(more, []byte("s3cret-s3cret-s3cret s3cret\n"), 0o600))
	everywhere, twice := filepath.Join(dir, "everywhere"), filepath.Join(dir, "twice")
	require.NoError(t, os.WriteFile(everywhere, []byte("s3cret-s3cret-s3cret prefix=\n"), 0o600))
	require.NoError(t, os.WriteFile(twice, []byte("s3cret-s3cret-s3cret right=read\ns3cret-s3cret-s3cret\n"), 0o600))
	policy := func(text string) string {
		file := filepath.Join(dir, strings.NewReplacer("/", "", " ", "", "\n", "").Replace(text))
		require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
		return file
	}
	writeCertificate(t, filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"))
	pair := "--tls-cert " + filepath.Join(dir, "c.pem") + " --tls-key " + filepath.Join(dir, "k.pem")
	double, marked := filepath.Join(dir, "double"), filepath.Join(dir, "marked")
	require.NoError(t, os.WriteFile(double, []byte("s3cret-s3cret-s3cret right=hold right=read\n"), 0o600))
	require.NoError(t, os.WriteFile(marked, []byte("\ufeffs3cret-s3cret-s3cret right=read\n"), 0o600))
	for args, want := range map[string]string{
		"serve locks --auth-token-file " + double:                                                                   "line 1 of " + double + " has right= twice",
		"serve locks --auth-token-file " + marked:                                                                   marked + " has a byte order mark",
		"serve locks --ttl-policy-file " + policy("min=1s min=2s"):                                                  "has min= twice",
		"serve locks --tls-client-ca " + long:                                                                       "give --tls-cert and --tls-key",
		"serve locks " + pair + " --tls-client-ca " + filepath.Join(dir, "c.pem"):                                   "say what certificates are good for",
		"serve locks " + pair + " --auth-token-file " + long + " --tls-client-ca " + long:                           "has no certificate in PEM",
		"serve locks --auth-token-file " + policy("cert-cn:"):                                                       "that is no name",
		"serve locks --auth-token-file " + policy("cert-dns:a"):                                                     "use cn:NAME or san:NAME",
		"lease list --server https://127.0.0.1:1 --tls-cert " + filepath.Join(dir, "c.pem"):                         "--tls-cert and --tls-key",
		"lease list --server https://127.0.0.1:1 --tls-cert /no/such/file --tls-key " + filepath.Join(dir, "k.pem"): "--tls-cert and --tls-key",
		"serve locks --listen unix:locks.sock":                                                                      "give an absolute path",
		"serve locks --listen unix:/" + strings.Repeat("x", 103):                                                    "at most 103 bytes",
		"serve locks --listen unix:/x --socket-mode 0999":                                                           "--socket-mode is",
		"serve locks --listen unix:/x --socket-mode 0400":                                                           "--socket-mode is",
		"serve locks --socket-mode 0660":                                                                            "--socket-mode is for --listen unix:",
		"serve locks --listen unix:/x " + pair:                                                                      "where nobody speaks TLS",
		"lease list --server unix:locks.sock":                                                                       "use an absolute path",
		"lease list --server unix://host/x":                                                                         "use an absolute path",
		"serve":                                                                                                     "Usage",
		"serve bogus":                                                                                               "unknown command",
		"serve locks --store bogus:s3cret":                                                                          "--store is none of",
		"serve locks --store etcd://s3cret:2379":                                                                    "use pglatch-etcd, of the module github.com/pglatch/pglatch/cmd/pglatch-etcd",
		"serve locks --durability some":                                                                             "--durability is",
		"serve locks --listen 0.0.0.0:0":                                                                            "--auth-token-file",
		"serve locks --auth-token-file " + short:                                                                    "16",
		"serve locks --store postgres --durability some":                                                            "--durability is",
		"serve locks --store postgres --durability relaxed":                                                         "--durability relaxed is for SQLite",
		"lease acquire n --wait -1s":                                                                                "--wait is -1s",
		"serve locks --auth-token-file /dev/null":                                                                   "has no token",
		"serve locks --auth-token-file /no/such/file":                                                               "no such file",
		"serve locks --auth-token-file " + root:                                                                     "line 1 of",
		"serve locks --auth-token-file " + everywhere:                                                               "the prefix is empty",
		"serve locks --auth-token-file " + twice:                                                                    "Tokens[1] is Tokens[0] again",
		"serve locks --auth-token-file " + more:                                                                     "more than a token",
		"serve locks --insecure-no-tls":                                                                             "--auth-token-file",
		"serve locks --tls-cert /no/such/file":                                                                      "--tls-cert",
		"serve locks --sweep-interval 0s":                                                                           "--sweep-interval",
		"serve locks --ttl-policy-file /no/such/file":                                                               "no such file",
		"serve locks --ttl-policy-file /dev/null":                                                                   "has no policy",
		"serve locks --ttl-policy-file " + policy("mni=1s"):                                                         "has \"mni=1s\": use prefix=",
		"serve locks --ttl-policy-file " + policy("prefix="):                                                        "the prefix is empty",
		"serve locks --ttl-policy-file " + policy("max=soon"):                                                       "max is \"soon\": use a positive duration",
		"serve locks --ttl-policy-file " + policy("max=-1s"):                                                        "max is \"-1s\": use a positive duration",
		"serve locks --ttl-policy-file " + policy("max=48h"):                                                        "TTLPolicies[0] is from 10ms to 48h0m0s",
		"serve locks --ttl-policy-file " + policy("min=9s max=1s"):                                                  "Min below Max",
		"serve locks --ttl-policy-file " + policy("max=1s default=2s"):                                              "has the default 2s: use 10ms to 1s",
		"serve locks --ttl-policy-file " + policy("max=1s\nprefix=a max=2s\nmin=1s"):                                "TTLPolicies[2] is for the prefix \"\" again",
		"serve locks --rate -1":                                                                                     "--rate is -1: use requests per second",
		"serve locks --rate NaN":                                                                                    "--rate is NaN",
		"serve locks --rate 5 --burst -1":                                                                           "--burst is -1",
		"serve locks --burst 5":                                                                                     "without a --rate",
		"serve locks --max-wait 0s":                                                                                 "--max-wait is 0s",
		"serve locks --max-waiters 0":                                                                               "--max-waiters is 0",
		"serve locks --max-body 0":                                                                                  "--max-body is 0",
		"serve locks --store-timeout -1s":                                                                           "--store-timeout is -1s",
		"serve locks --store postgres --max-conns 0":                                                                "--max-conns",
		"serve locks --listen 0.0.0.0:0 --auth-token-file " + long:                                                  "--tls-cert",
		"serve locks --insecure-no-auth --auth-token-file " + long:                                                  "--insecure-no-auth lets everybody in",
		"lease acquire":                                  "give one NAME",
		"lease acquire n --ttl 1ns":                      "TTL",
		"lease acquire n --server ftp://x":               "--server",
		"lease renew n":                                  "--lease-id",
		"lease run n":                                    "give the command",
		"lease run n --kill-after 9s -- true":            "--kill-after 9s + 300ms for the signals to act + 1.5s",
		"lease run n --ttl 40ms -- true":                 "of --ttl 40ms",
		"lease run n --ttl 30s --kill-after 20s -- true": "shorten --kill-after, or lengthen --ttl",
		"lease run n --ttl 1ns -- true":                  "TTL",
		"lease list --limit -1":                          "Limit",
		"load --target moon":                             "--target",
		"load --clients 0":                               "--clients",
		"load --locks 0":                                 "--locks",
		"load --expire 99 --heartbeats 2":                "--heartbeats",
		"serve locks --store sqlite://foo.db":            "say sqlite:foo.db",
		"serve locks --store sqlite::memory:":            "is no file",
		"load --server http://x --store sqlite:x":        "none of the others can be",
	} {
		stdout, stderr, code := clitest.Run(t, []string{"XDG_STATE_HOME=" + dir, "PGLATCH_DATABASE_URL=" + clitest.Nowhere}, strings.Fields(args)...)
		if args == "serve" {
			assert.Contains(t, stdout, want)
			continue
		}
		assert.Equal(t, 64, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want, args)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		assert.NotContains(t, stderr, "s3cret", args)
	}
	_, stderr, code := clitest.Run(t, []string{"HOME="}, "serve", "locks")
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
		"--store " + clitest.Nowhere,
		"--store sqlite:" + filepath.Join(dir, "no", "such", "dir.db"),
		"--store sqlite:" + garbage,
		"--store sqlite:" + filepath.Join(dir, "ok.db") + " --listen " + taken.Addr().String(),
	} {
		_, stderr, code := clitest.Run(t, nil, append([]string{"serve", "locks"}, strings.Fields(args)...)...)
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
	p := clitest.Start(t, nil, "serve", "locks", "--listen", "0.0.0.0:0", "--store", "sqlite:"+filepath.Join(dir, "l.db"),
		"--auth-token-file", tokens, "--tls-cert", certificate, "--tls-key", key)
	p.Saying(&p.Stderr, "msg=serving")
	port := regexp.MustCompile(`address=\S+:(\d+)`).FindStringSubmatch(p.Stderr.String())[1]
	list := []string{"lease", "list", "--server", "https://127.0.0.1:" + port}
	_, stderr, code := clitest.Run(t, nil, append(list, "--auth-token-file", tokens, "--tls-ca", certificate)...)
	assert.Zero(t, code, stderr)
	_, stderr, code = clitest.Run(t, nil, append(list, "--auth-token-file", tokens)...)
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "certificate")
	_, stderr, code = clitest.Run(t, nil, append(list, "--tls-ca", certificate)...)
	assert.Equal(t, 77, code)
	assert.Contains(t, stderr, "denies access")
}

func TestServeLocksToEverybodySaysSo(t *testing.T) {
	t.Parallel()
	p := clitest.Start(t, nil, "serve", "locks", "--listen", "0.0.0.0:0", "--insecure-no-auth", "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
	p.Saying(&p.Stderr, "level=WARN msg=\"EVERYBODY")
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait())
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
