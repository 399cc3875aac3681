package leadercmd_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// holdingOffice is the command of a leader that tells its term and stays.
const holdingOffice = "echo leads $PGLATCH_KEY $PGLATCH_TERM; exec sleep 300"

// requireSuccession runs two nodes of the election that flags name, kills the
// leader, and waits for the other to lead. era is that of the terms.
func requireSuccession(t *testing.T, env []string, era string, flags ...string) {
	t.Helper()
	leader := func(command string, more ...string) []string {
		return append(append([]string{"leader", command, "job"}, flags...), more...)
	}
	watch := clitest.Start(t, env, leader("watch", "--interval", "20ms", "-o", "jsonl")...)
	watch.Saying(&watch.Stdout, `"led":false`)
	// A lease that is long enough for a busy machine: the first leader must not lose it.
	first := clitest.Start(t, env, leader("run", "--id", "a", "--lease-duration", "8s", "-c", holdingOffice)...)
	first.Saying(&first.Stdout, "leads job "+era+".1\n")
	watch.Saying(&watch.Stdout, `"identity":"a","term":"`+era+`.1"`)
	second := clitest.Start(t, env, leader("run", "-v", "--id", "b", "--lease-duration", "8s", "-c", holdingOffice)...)
	second.Saying(&second.Stderr, "state.from=acquiring state.to=follower")
	assert.Empty(t, second.Stdout.String())
	stdout, stderr, code := clitest.Run(t, env, leader("status")...)
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "job: a leads in term "+era+".1 since")

	first.Signal(syscall.SIGKILL)
	second.Saying(&second.Stdout, "leads job "+era+".2\n")
	watch.Saying(&watch.Stdout, `"identity":"b","term":"`+era+`.2"`)
	second.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, second.Wait(), "the command's own end")
	stdout, _, code = clitest.Run(t, env, leader("status")...)
	assert.Equal(t, 3, code)
	assert.Contains(t, stdout, "nobody leads")
	watch.Signal(syscall.SIGTERM)
	assert.Zero(t, watch.Wait())
}

func TestLeadersOfAFileExcludeEachOtherAndAKilledOneIsSucceeded(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	requireSuccession(t, nil, "1", "--backend", "file", "--file", filepath.Join(t.TempDir(), "leader.json"))
}

func TestLeadersOfTwoFilesDoNotExcludeEachOther(t *testing.T) { // else the tests beside it show nothing
	t.Parallel()
	for _, name := range []string{"a", "b"} {
		node := clitest.Start(t, nil, "leader", "run", "job", "--backend", "file", "--file", filepath.Join(t.TempDir(), name), "-c", holdingOffice)
		node.Saying(&node.Stdout, "leads job 1.1\n")
	}
}

func TestLeadersOfALeaseExcludeEachOtherAndAKilledOneIsSucceeded(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	_, env := clitest.LockServer(t, leasetest.NewStore())
	requireSuccession(t, env, "0", "--backend", "lease")
}

func TestTheLockServersOwnProgramIsABackend(t *testing.T) {
	t.Parallel()
	_, address := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
	server := "http://" + address
	stdout, stderr, code := clitest.Run(t, nil, "leader", "run", "job", "--backend", "lease", "--server", server, "-c", "echo $PGLATCH_LOCK_HELD $PGLATCH_KEY $PGLATCH_FENCING_TOKEN")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "true job 1\n", stdout)
}

func TestALeaderOfALeaseSendsItsToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{{Secret: "0123456789abcdef"}}})
	require.NoError(t, err)
	s := httptest.NewServer(server.Handler())
	t.Cleanup(s.Close)
	lead := []string{"leader", "run", "job", "--backend", "lease", "--server", s.URL, "--no-auto-reacquire"}
	_, stderr, code := clitest.Run(t, nil, append(lead, "--", "true")...)
	assert.NotZero(t, code, stderr)
	_, stderr, code = clitest.Run(t, nil, append(lead, "--auth-token-file", token, "--", "true")...)
	assert.Zero(t, code, stderr)
}

func TestACorruptFileIsLeftAloneUnlessItIsToBeRepaired(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leader.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"holder":`), 0o600))
	flags := []string{"--backend", "file", "--file", path}
	_, stderr, code := clitest.Run(t, nil, append([]string{"leader", "status", "job"}, flags...)...)
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "corrupt")
	_, stderr, code = clitest.Run(t, nil, append([]string{"leader", "run", "job"}, flags...)...)
	assert.Equal(t, 69, code)
	assert.Contains(t, stderr, "corrupt")
	node := clitest.Start(t, nil, append([]string{"leader", "run", "job", "--keep-trying"}, flags...)...)
	node.Saying(&node.Stderr, "corrupt")
	node.Signal(syscall.SIGTERM)
	assert.Zero(t, node.Wait())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, `{"holder":`, string(content))
	repaired := clitest.Start(t, nil, append([]string{"leader", "run", "job", "--repair", "--lease-duration", "500ms", "--retry-base", "50ms", "--retry-max", "100ms"}, flags...)...)
	repaired.Saying(&repaired.Stderr, "lock_acquired")
}

func TestFlagsThatDoNotFitTheBackendEndWith64AndNameBoth(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leader.json")
	for args, want := range map[string]string{
		"run 1:1 --file x":                                                    "--file is for --backend file: leave it out with --backend postgres",
		"run 1:1 --repair":                                                    "--repair is for --backend file",
		"run 1:1 --server http://x":                                           "--server is for --backend lease: leave it out with --backend postgres",
		"watch 1:1 --auth-token-file x":                                       "--auth-token-file is for --backend lease",
		"status 1:1 --tls-ca x":                                               "--tls-ca is for --backend lease",
		"run x --backend lease --file x":                                      "--file is for --backend file: leave it out with --backend lease",
		"run x --backend lease --create-table":                                "--create-table is for --backend postgres",
		"run x --backend lease --guard-timeout 1s":                            "--guard-timeout is for --backend postgres",
		"run x --backend lease --no-terms":                                    "--no-terms is for --backend postgres",
		"status x --backend lease --database-url x":                           "--database-url is for --backend postgres: leave it out with --backend lease",
		"status x --backend lease --dsn x":                                    "--dsn is for --backend postgres",
		"watch x --backend file --file x --key1 1 --key2 2":                   "--key1 is for --backend postgres: leave it out with --backend file",
		"watch x --backend file --file x --table t":                           "--table is for --backend postgres",
		"watch x --backend file --file x --namespace a=1":                     "--namespace is for --backend postgres",
		"run x --backend file --file x --insecure-no-tls":                     "--insecure-no-tls is for --backend lease",
		"run x --backend file":                                                "--backend file needs --file",
		"run --backend file --file x":                                         "give one NAME",
		"run x y --backend file --file x":                                     "give one NAME",
		"run a/../b --backend lease":                                          "NAME",
		"run x --backend lease --server ftp://x":                              "--server",
		"run x --backend file --lease-duration 1ms --file " + path:            "--lease-duration is 1ms",
		"run x --backend file --file " + path + " --id " + long(1025):         "--id is",
		"run x --backend file --file " + path + " -c true --id " + long(1025): "use text of at most 1024 bytes",
		"run x --backend zookeeper":                                           `--backend is "zookeeper": use one of postgres, lease, file`,
		"run x --backend kubernetes":                                          "use pglatch-kubernetes, of the module github.com/pglatch/pglatch/cmd/pglatch-kubernetes",
		"status x --backend kubernetes":                                       "use pglatch-kubernetes",
		"run x --kubeconfig x":                                                "unknown flag: --kubeconfig",
	} {
		_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), append([]string{"leader"}, strings.Fields(args)...)...)
		assert.Equal(t, 64, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want, args)
	}
	assert.NoFileExists(t, path)
}

func TestAnIdentityThatALockServerRefusesEndsWith64(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, leasetest.NewStore())
	_, stderr, code := clitest.Run(t, env, "leader", "run", "job", "--backend", "lease", "--id", long(lease.MaxName+1), "--", "true")
	assert.Equal(t, 64, code, stderr)
}

func long(n int) string { return strings.Repeat("x", n) }

func TestABackendThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"status", "watch"} {
		_, stderr, code := clitest.Run(t, nil, "leader", command, "job", "--backend", "lease", "--server", "http://127.0.0.1:1")
		assert.Equal(t, 69, code, stderr)
	}
}

func TestHelpTellsTheBackendsAndTheirFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "status", "watch"} {
		stdout, _, code := clitest.Run(t, nil, "leader", command, "--help")
		assert.Zero(t, code)
		for _, want := range []string{"postgres, lease, file", "postgres: table that", "lease: URL of", "file: path of", "file: replace"} {
			assert.Contains(t, stdout, want, command)
		}
		assert.NotContains(t, stdout, "kubeconfig")
	}
	stdout, _, _ := clitest.Run(t, nil, "leader", "--help")
	assert.Contains(t, stdout, "pglatch-kubernetes")
}
