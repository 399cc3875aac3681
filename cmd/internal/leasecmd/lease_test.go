package leasecmd_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestALeaseIsAcquiredRenewedShownAndReleased(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, leasetest.NewStore())
	acquire := strings.Fields("lease acquire job --owner a --ttl 1m --metadata host=x -o json")
	stdout, stderr, code := clitest.Run(t, env, acquire...)
	require.Zero(t, code, stderr)
	got := clitest.Decode[clitest.LeaseAnswer](t, stdout)
	assert.Equal(t, "job", got.Lock)
	assert.Equal(t, "a", got.OwnerID)
	assert.Equal(t, map[string]string{"host": "x"}, got.Metadata)

	_, stderr, code = clitest.Run(t, env, "lease", "acquire", "job", "--owner", "b")
	assert.Equal(t, 75, code)
	assert.Contains(t, stderr, "held by a")
	_, stderr, code = clitest.Run(t, env, "lease", "acquire", "job", "--owner", "b", "--wait", "3s")
	assert.Equal(t, 75, code, stderr)

	claim := func(verb string, token uint64) []string {
		return []string{"lease", verb, "job", "--owner", "a", "--lease-id", got.LeaseID, "--fencing-token", fmt.Sprint(token)}
	}
	stdout, stderr, code = clitest.Run(t, env, append(claim("renew", got.FencingToken), "--ttl", "1h", "-o", "json")...)
	require.Zero(t, code, stderr)
	assert.Greater(t, clitest.Decode[clitest.LeaseAnswer](t, stdout).TTLRemainingMS, int64(50*60*1000))
	for _, c := range []struct {
		flag string
		want map[string]string
	}{{"--metadata=part=2", map[string]string{"part": "2"}}, {"--ttl=1h", map[string]string{"part": "2"}}, {"--clear-metadata", nil}} {
		stdout, stderr, code = clitest.Run(t, env, append(claim("renew", got.FencingToken), c.flag, "-o", "json")...)
		require.Zero(t, code, stderr)
		assert.Equal(t, c.want, clitest.Decode[clitest.LeaseAnswer](t, stdout).Metadata, c.flag)
	}
	stdout, stderr, code = clitest.Run(t, env, "lease", "adopt", "job", "--owner", "a", "--lease-id", got.LeaseID, "-o", "json")
	require.Zero(t, code, stderr)
	assert.Equal(t, got.FencingToken, clitest.Decode[clitest.LeaseAnswer](t, stdout).FencingToken)
	stdout, _, code = clitest.Run(t, env, "lease", "adopt", "job", "--owner", "a", "--lease-id", got.LeaseID, "--export")
	assert.Zero(t, code)
	assert.Contains(t, stdout, fmt.Sprintf("export PGLATCH_FENCING_TOKEN='%d'\n", got.FencingToken))
	_, stderr, code = clitest.Run(t, env, "lease", "adopt", "job", "--owner", "b", "--lease-id", got.LeaseID)
	assert.Equal(t, 76, code)
	assert.Contains(t, stderr, "holder not the current one")
	_, _, code = clitest.Run(t, env, "lease", "adopt", "job", "--owner", "a")
	assert.Equal(t, 64, code)
	_, stderr, code = clitest.Run(t, env, claim("renew", got.FencingToken+1)...)
	assert.Equal(t, 76, code)
	assert.Contains(t, stderr, "token not the current one")
	_, _, code = clitest.Run(t, env, claim("release", got.FencingToken+1)...)
	assert.Equal(t, 76, code)

	stdout, _, code = clitest.Run(t, env, "lease", "get", "job", "-o", "json")
	assert.Zero(t, code)
	assert.Equal(t, "HELD", clitest.Decode[clitest.LeaseAnswer](t, stdout).State)
	stdout, _, code = clitest.Run(t, env, "lease", "list", "-o", "jsonl")
	assert.Zero(t, code)
	assert.Equal(t, "job", clitest.DecodeLines[clitest.LeaseAnswer](t, stdout)[0].Lock)
	stdout, _, _ = clitest.Run(t, env, "lease", "list", "--prefix", "other", "-o", "json")
	assert.Equal(t, "[]\n", stdout)
	stdout, _, _ = clitest.Run(t, env, "lease", "list")
	assert.Regexp(t, `job +HELD +a +1 `, stdout)

	for range 2 { // once more is no error
		_, stderr, code = clitest.Run(t, env, claim("release", got.FencingToken)...)
		assert.Zero(t, code, stderr)
	}
	stdout, _, code = clitest.Run(t, env, "lease", "get", "job")
	assert.Equal(t, 3, code)
	assert.Contains(t, stdout, "FREE")
	_, stderr, code = clitest.Run(t, env, "lease", "get", "never")
	assert.Equal(t, 3, code)
	assert.Contains(t, stderr, "nothing known of never")
}

func TestAShellCanEvaluateALease(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, leasetest.NewStore())
	script := fmt.Sprintf(`eval "$(%[1]q lease acquire "it's" --owner "o'neill" --export)" && %[1]q lease renew "it's" >&2 && %[1]q lease release "it's" && echo $PGLATCH_FENCING_TOKEN`, clitest.Binary)
	p := clitest.StartCommand(t, env, "/bin/sh", "-c", script)
	require.Zero(t, p.Wait(), p.Stderr.String())
	assert.Equal(t, "1\n", p.Stdout.String())
}

func TestLeaseCommandsWithoutAServerEndWith69(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	claim := " --owner a --lease-id x --fencing-token 1"
	for _, args := range []string{"lease acquire n", "lease renew n" + claim, "lease release n" + claim, "lease get n", "lease get n -w 50ms", "lease get n -f", "lease list", "lease run -n n -- true", "lease run -w 50ms n -- true", "lease acquire -w 50ms n", "load"} {
		_, stderr, code := clitest.Run(t, []string{"PGLATCH_LOCK_SERVER=http://127.0.0.1:1"}, strings.Fields(args)...)
		assert.Equal(t, 69, code, "%s: %s", args, stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

func TestLeaseRunEndsWithTheCodeOfItsCommandAndReleasesTheLease(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--", "true"}, 0},
		{[]string{"-c", "exit 7"}, 7},
		{[]string{"-c", "kill -9 $$"}, 137},
		{[]string{"--", "/nonexistent/program"}, 127},
		{[]string{"--", "/etc/passwd"}, 126},
	} {
		_, stderr, code := clitest.Run(t, env, append([]string{"lease", "run", "job"}, c.args...)...)
		assert.Equal(t, c.code, code, "%v: %s", c.args, stderr)
		record, err := store.Get(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, lease.Free, record.State, "%v", c.args)
	}
}

func TestTheCommandOfALeaseSeesIt(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store, "PGLATCH_KEY1=outer")
	stdout, stderr, code := clitest.Run(t, env, "lease", "run", "job", "--owner", "me", "-c", "env | grep ^PGLATCH | grep -v LOCK_SERVER | LC_ALL=C sort")
	require.Zero(t, code, stderr)
	record, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("PGLATCH_FENCING_TOKEN=1\nPGLATCH_LEASE_ID=%s\nPGLATCH_LEASE_NAME=job\nPGLATCH_LEASE_OWNER=me\nPGLATCH_LOCK_HELD=true\n", record.ID), stdout)
}

func TestLeaseRunsExcludeEachOther(t *testing.T) {
	t.Parallel()
	clitest.HeedInterrupts(t)
	_, env := clitest.LockServer(t, leasetest.NewStore())
	first := clitest.Start(t, env, "lease", "run", "job", "--ttl", "6s", "-c", clitest.Family) // a busy machine renews in time
	old := first.Pids(1)
	_, stderr, code := clitest.Run(t, env, "lease", "run", "job", "-n", "--", "true")
	assert.Equal(t, 75, code, stderr)
	_, _, code = clitest.Run(t, env, "lease", "run", "job", "-w", "8s", "-E", "42", "--", "true")
	assert.Equal(t, 42, code, "heartbeats keep the lease")
	waiting := clitest.Start(t, env, "lease", "run", "job", "--", "echo", "never")
	waiting.Saying(&waiting.Stderr, `msg="waiting for the lock" lock=job held_by=`)
	next := clitest.Start(t, env, "lease", "run", "job", "--", "echo", "mine")
	next.Saying(&next.Stderr, `msg="waiting for the lock" lock=job held_by=`)
	share := clitest.Start(t, env, "lease", "run", "--slots", "1", "pool", "-c", clitest.Family)
	share.Pids(1)
	other := clitest.Start(t, env, "lease", "run", "--slots", "1", "pool", "--", "echo", "never")
	other.Saying(&other.Stderr, `msg="waiting for the lock" lock=pool held_by=`)
	waiting.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, waiting.Wait())
	first.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, first.Wait(), "the command's own end")
	clitest.RequireDead(t, old...)
	assert.Zero(t, next.Wait())
	assert.Equal(t, "mine\n", next.Stdout.String())
	assert.Empty(t, waiting.Stdout.String())
	share.Signal(syscall.SIGTERM) // or its command's child outlives it, with the streams
	assert.Equal(t, 143, share.Wait())
}

func TestTheCommandIsGoneBeforeALeaseThatCannotBeKeptExpires(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for _, times := range []string{"--ttl 20s --kill-after 2s", "--ttl 20s", "--ttl 20s --kill-after 10s"} {
		t.Run(times, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			server, env := clitest.LockServer(t, store)
			args := append(strings.Fields("lease run job "+times), "-c", "trap '' TERM; "+clitest.Family+"; wait; wait") // KILL ends it only
			p := clitest.Start(t, env, args...)
			group := p.Pids(1)
			server.CloseClientConnections()
			server.Close()
			clitest.RequireDead(t, group...)
			record, err := store.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, lease.Held, record.State, "for another %v", record.Remaining)
			assert.Equal(t, 76, p.Wait())
			assert.Contains(t, p.Stderr.String(), "no renewal succeeded in time")
		})
	}
}

func TestTheCommandIsStoppedWhenItsLeaseIsTaken(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	p := clitest.Start(t, env, "lease", "run", "job", "--ttl", "6s", "-c", clitest.Family) // it has the lease still when a thief comes
	group := p.Pids(1)
	record, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, store.Release(t.Context(), record.Claim))
	_, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "thief", TTL: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, 76, p.Wait())
	assert.Contains(t, p.Stderr.String(), "the command was stopped")
	clitest.RequireDead(t, group...)
	record, err = store.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, "thief", record.Holder, "the late release took nothing away")
}

func TestACommandThatWasSuspendedPastItsLeaseIsStopped(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	p := clitest.Start(t, env, "lease", "run", "job", "--ttl", "5s", "-c", clitest.Family) // it has the lease still when it is stopped
	group := p.Pids(1)
	p.Signal(syscall.SIGSTOP)
	clitest.Eventually(t, func() bool {
		record, err := store.Get(t.Context(), "job")
		return err == nil && record.State == lease.Expired
	}, func() string { return "the lease does not expire" })
	p.Signal(syscall.SIGCONT)
	assert.Equal(t, 76, p.Wait())
	clitest.RequireDead(t, group...)
}

func TestTheLastWordOnTokensIsTheServers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("# comment\n0123456789abcdef\n"), 0o600))
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{{Secret: "0123456789abcdef"}}})
	require.NoError(t, err)
	s := httptest.NewServer(server.Handler())
	t.Cleanup(s.Close)
	for _, command := range []string{"lease list", "lease get job", "lease acquire job", "lease run job -- true", "load --duration 1s", "leader status jobs --backend lease", "leader run jobs --backend lease"} {
		_, stderr, code := clitest.Run(t, []string{"PGLATCH_LOCK_SERVER=" + s.URL}, strings.Fields(command)...)
		assert.Equal(t, 77, code, "%s: %s", command, stderr)
		assert.Contains(t, stderr, "denies access", command)
	}
	_, stderr, code := clitest.Run(t, nil, "lease", "list", "--server", s.URL, "--auth-token-file", file)
	assert.Zero(t, code, stderr)
	_, stderr, code = clitest.Run(t, []string{"PGLATCH_LOCK_TOKEN=0123456789abcdef"}, "lease", "list", "--server", s.URL)
	assert.Zero(t, code, stderr)
	_, stderr, code = clitest.Run(t, []string{"PGLATCH_LOCK_TOKEN=0123456789abcdef"}, "lease", "list", "--server", "http://192.0.2.1")
	assert.Equal(t, 64, code, "not in clear text")
	assert.NotContains(t, stderr, "0123456789abcdef")
}
