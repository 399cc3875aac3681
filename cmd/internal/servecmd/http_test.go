package servecmd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

// page gets a page of a lock server.
func page(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(raw)
}

func TestTheProbesOfServeLocksTellOfAStoreThatHasStopped(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+file)
	probes := func(want int) {
		for _, probe := range []string{"/healthz", "/readyz"} {
			status, body := page(t, address, probe)
			assert.Equal(t, want, status, "%s: %s", probe, body)
		}
	}
	probes(http.StatusNoContent)
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(20000)") // the server may just write
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "DROP TABLE state")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	probes(http.StatusServiceUnavailable)
}

func TestServeLocksKeepsToTheLimitsThatItIsGiven(t *testing.T) {
	t.Parallel()
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"),
		"--rate", "0.0001", "--burst", "4", "--max-wait", "50ms", "--max-body", "100", "--store-timeout", "9s", "--max-waiters", "3")
	acquire := func(target, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/locks/job/acquire"+target, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(answer)
	}
	for _, c := range []struct {
		target, body string
		status       int
		says         string
	}{
		{"", `{"owner_id":"a","ttl_ms":3600000}`, http.StatusOK, "fencing_token"},
		{"?wait=24h", `{"owner_id":"b","ttl_ms":3600000}`, http.StatusConflict, "lock-held"},
		{"", `{"owner_id":"b","ttl_ms":3600000,"metadata":{"x":"` + strings.Repeat("x", 100) + `"}}`, http.StatusRequestEntityTooLarge, "larger than 100 bytes"},
		{"", `{}`, http.StatusBadRequest, "owner_id is empty"},
		{"", `{"owner_id":"a","ttl_ms":3600000}`, http.StatusTooManyRequests, "rate-limited"},
	} {
		status, answer := acquire(c.target, c.body)
		assert.Equal(t, c.status, status, answer)
		assert.Contains(t, answer, c.says)
	}
}

// An authority vouches for clients; its own certificate is in a file.
type authority struct {
	dir, file   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, a.key.Public(), a.key)
	require.NoError(t, err)
	a.file = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(a.dir, name)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// client is the flags of one with a certificate, which is that of a server at 127.0.0.1, too.
func (a *authority) client(t *testing.T, commonName, dnsName string, expires time.Time) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{dnsName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return []string{"--tls-cert", a.write(t, commonName+".pem", "CERTIFICATE", der), "--tls-key", a.write(t, commonName+".key", "PRIVATE KEY", secret)}
}

func TestServeLocksKnowsItsClientsByTheirCertificates(t *testing.T) {
	t.Parallel()
	dir, soon := t.TempDir(), time.Now().Add(time.Hour)
	certificate, key, authorities, tokens := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "tokens")
	ours, others := newAuthority(t), newAuthority(t)
	trust := func(file string) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(authorities, content, 0o600))
	}
	trust(ours.file)
	clitest.WriteCertificate(t, certificate, key)
	require.NoError(t, os.WriteFile(tokens, []byte("cert-cn:ops\ncert-san:worker.example right=hold prefix=jobs/ # of jobs\ncert-cn:reader right=read\n"), 0o600))
	p := clitest.Start(t, nil, "serve", "locks", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "l.db"),
		"--auth-token-file", tokens, "--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authorities)
	p.Saying(&p.Stderr, "msg=serving")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.Stderr.String())[1]
	ask := func(who []string, args ...string) (int, string) {
		_, stderr, code := clitest.Run(t, nil, append(append([]string{"lease"}, args...), append(who, "--server", "https://"+address, "--tls-ca", certificate)...)...)
		return code, stderr
	}
	ops := ours.client(t, "ops", "ops.example", soon)
	for i, c := range []struct {
		who  []string
		args []string
		code int
		says string
	}{
		{nil, []string{"list"}, 69, "certificate required"},
		{others.client(t, "ops", "", soon), []string{"list"}, 69, ""},
		{ours.client(t, "ops-of-old", "", time.Now().Add(-time.Minute)), []string{"list"}, 69, "expired certificate"},
		{ours.client(t, "stranger", "", soon), []string{"list"}, 77, "denies access"},
		{ours.client(t, "worker", "worker.example", soon), []string{"acquire", "jobs/x", "--owner", "a", "--ttl", "1h"}, 0, ""},
		{ours.client(t, "worker", "worker.example", soon), []string{"acquire", "x"}, 77, "names begin with"},
		{ours.client(t, "reader", "", soon), []string{"list"}, 0, ""},
		{ours.client(t, "reader", "", soon), []string{"acquire", "jobs/y"}, 77, "needs the hold right"},
		{ops, []string{"force-release", "jobs/x", "--reason", "gone"}, 0, ""},
	} {
		code, stderr := ask(c.who, c.args...)
		assert.Equal(t, c.code, code, "%d: %s", i, stderr)
		assert.Contains(t, stderr, c.says, i)
	}
	p.Saying(&p.Stderr, `by="CN=ops"`)

	require.NoError(t, os.WriteFile(authorities, []byte("broken"), 0o600))
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, "what=authorities error=")
	code, stderr := ask(ops, "list")
	require.Zero(t, code, stderr)

	trust(others.file)
	clitest.WriteCertificate(t, certificate, key) // another: the one before would not be trusted
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, `msg="read again" what=authorities`)
	code, stderr = ask(ops, "list")
	assert.Equal(t, 69, code, stderr)
	code, stderr = ask(others.client(t, "ops", "", soon), "list")
	assert.Zero(t, code, stderr)
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait())
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestScript(t *testing.T) { clitest.Scripts(t) }
