package servecmd_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestServeLocksReadsItsTTLPoliciesAgainOnAHangup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ttl")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("# of jobs\nprefix=jobs/ min=5s max=10m default=30s\n\nmax=1h # of all others\n")
	p, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"), "--ttl-policy-file", file)
	acquire := func(name, ttl string) int {
		_, stderr, code := clitest.Run(t, nil, "lease", "acquire", name, "--owner", "a", "--ttl", ttl, "--server", "http://"+address)
		t.Log(stderr)
		return code
	}
	require.Equal(t, []int{0, 64, 0, 64}, []int{acquire("jobs/1", "10m"), acquire("jobs/2", "11m"), acquire("x1", "11m"), acquire("x2", "2h")})
	write("prefix=jobs/ max=10min\n")
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, `what="ttl policies" error=`)
	require.Equal(t, 64, acquire("jobs/2", "11m"), "what was is kept")
	write("max=11m\nprefix=jobs/ max=12m\n")
	p.Signal(syscall.SIGHUP)
	p.Saying(&p.Stderr, `msg="read again" what="ttl policies"`)
	assert.Equal(t, []int{0, 64, 0, 64}, []int{acquire("jobs/2", "11m"), acquire("jobs/3", "13m"), acquire("x2", "11m"), acquire("x3", "2h")})
}
