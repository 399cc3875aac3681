package servecmd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

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

// client is the flags of one with a certificate.
func (a *authority) client(t *testing.T, commonName, dnsName string, expires time.Time) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{dnsName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
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
		{ours.client(t, "worker", "worker.example", soon), []string{"acquire", "jobs/x", "--owner", "a"}, 0, ""},
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
