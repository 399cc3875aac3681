package servecmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestServeLocksReadsTokensAndCertificateAgainOnAHangup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key, tokens, mine := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "tokens"), filepath.Join(dir, "mine")
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	writeCertificate(t, certificate, key)
	write(tokens, "first-0123456789abcdef\n")
	write(mine, "second-0123456789abcdef\n")
	p := clitest.Start(t, nil, "serve", "locks", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "l.db"),
		"--auth-token-file", tokens, "--tls-cert", certificate, "--tls-key", key)
	p.Saying(&p.Stderr, "msg=serving")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.Stderr.String())[1]
	ask := func(file string, args ...string) int {
		_, stderr, code := clitest.Run(t, nil, append(args, "--server", "https://"+address, "--auth-token-file", file, "--tls-ca", certificate)...)
		t.Log(stderr)
		return code
	}
	require.Equal(t, []int{0, 77}, []int{ask(tokens, "lease", "list"), ask(mine, "lease", "list")})

	write(tokens, "broken\n")
	write(key, "broken")
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, "what=certificate error=")
	assert.Contains(t, p.Stderr.String(), "what=tokens error=")
	write(tokens, "first-0123456789abcdef\n")
	require.Equal(t, []int{0, 77}, []int{ask(tokens, "lease", "list"), ask(mine, "lease", "list")}, "what was is kept")

	writeCertificate(t, certificate, key) // another: the one before would not be trusted
	write(tokens, "# of the reader\nsecond-0123456789abcdef right=read prefix=jobs/ # right=admin\n")
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, `msg="read again" what=certificate`)
	require.Equal(t, 0, ask(mine, "lease", "list", "--prefix", "jobs/"))
	require.Equal(t, 77, ask(mine, "lease", "list"), "others are not to be seen")
	require.Equal(t, 77, ask(mine, "lease", "acquire", "jobs/x"), "nor to be changed")
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait())
}
