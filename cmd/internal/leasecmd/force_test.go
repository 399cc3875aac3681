package leasecmd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestAnAdminEndsTheLeaseOfAnotherFromTheShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, ops, worker := filepath.Join(dir, "all"), "ops-0123456789abcdef", "worker-0123456789abcdef"
	require.NoError(t, os.WriteFile(all, []byte(ops+" name=ops-team\n"+worker+" right=hold\n"), 0o600))
	server, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(dir, "l.db"), "--auth-token-file", all)
	run := func(token string, args ...string) (string, string, int) {
		return clitest.Run(t, []string{"PGLATCH_LOCK_TOKEN=" + token, "PGLATCH_LOCK_SERVER=http://" + address}, append([]string{"lease"}, args...)...)
	}
	stdout, stderr, code := run(worker, "acquire", "job", "--owner", "a", "--ttl", "1h", "--lock-delay", "1h", "-o", "json")
	require.Zero(t, code, stderr)
	held := clitest.Decode[clitest.LeaseAnswer](t, stdout)

	for _, c := range []struct {
		token string
		args  []string
		code  int
		says  string
	}{
		{ops, []string{"job"}, 64, "give --reason"},
		{ops, []string{"--reason", "x"}, 64, "give one NAME"},
		{worker, []string{"job", "--reason", "x"}, 77, "this needs the right admin"},
		{ops, []string{"job", "--reason", "x", "--fencing-token", "99"}, 76, "token not the current one"},
		{ops, []string{"other", "--reason", "x"}, 3, "other"},
	} {
		_, stderr, code := run(c.token, append([]string{"force-release"}, c.args...)...)
		assert.Equal(t, c.code, code, "%q: %s", c.args, stderr)
		assert.Contains(t, stderr, c.says)
	}
	stdout, stderr, code = run(ops, "force-release", "job", "--reason", "its host is gone")
	require.Zero(t, code, stderr)
	assert.Regexp(t, `^ended the lease of a on job: fencing token 1, \S+ were left; its lock delay keeps the lock for \S+\n$`, stdout)
	_, stderr, code = run(ops, "force-release", "job", "--reason", "again")
	assert.Equal(t, 75, code, stderr)
	_, stderr, code = run(ops, "force-release", "job", "--reason", "its disk is gone too", "--fencing-token", "2")
	assert.Zero(t, code, stderr)
	_, stderr, code = run(ops, "force-release", "job", "--reason", "again")
	assert.Equal(t, 3, code, stderr)

	server.Saying(&server.Stderr, `reason="its disk is gone too"`)
	log := server.Stderr.String()
	assert.Contains(t, log, `msg=lease_force_released outcome=released by=ops-team from=127.0.0.1:`)
	assert.Contains(t, log, `lock=job owner_id=a fencing_token=1 reason="its host is gone"`)
	assert.NotContains(t, log, held.LeaseID)
}
