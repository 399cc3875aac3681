package leasecmd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestALockWithSlotsHasSoManyCommandsAtOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	for range 2 {
		_, stderr, code := clitest.Run(t, env, "lease", "acquire", "gpu", "--slots", "2", "--ttl", "1h")
		require.Zero(t, code, stderr)
	}
	_, stderr, code := clitest.Run(t, env, "lease", "run", "-n", "--slots", "2", "gpu", "--", "true")
	assert.Equal(t, 75, code, stderr)
	stdout, _, code := clitest.Run(t, env, "lease", "list", "--prefix", "gpu::slot::")
	assert.Zero(t, code)
	assert.Regexp(t, `(?m)^gpu::slot::0001 +HELD`, stdout)
	assert.Regexp(t, `(?m)^gpu::slot::0002 +HELD`, stdout)

	stdout, stderr, code = clitest.Run(t, env, "lease", "run", "--slots", "3", "gpu", "-c", "echo $PGLATCH_SLOT $PGLATCH_LEASE_NAME $PGLATCH_FENCE")
	require.Zero(t, code, stderr)
	assert.Equal(t, "3 gpu::slot::0003 4\n", stdout) // the refused one passed the gate, too
	record, err := store.Get(t.Context(), shared.SlotName("gpu", 3))
	require.NoError(t, err)
	assert.Equal(t, lease.Free, record.State)
}

func TestReadersShareALockThatAWriterHasAlone(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	script := `eval "$(` + clitest.Binary + ` lease acquire book --shared --ttl 1h --export)"; ` + clitest.Binary + ` lease run -n --exclusive book -- true; echo $?; ` +
		clitest.Binary + ` lease run -n --shared book -c 'echo read'; ` + clitest.Binary + ` lease release "$PGLATCH_LEASE_NAME" && echo $PGLATCH_SLOT; ` +
		clitest.Binary + ` lease run -n --exclusive book -c 'echo "[$PGLATCH_SLOT]"; ` + clitest.Binary + ` lease run -n --shared book -- true; echo $?'`
	p := clitest.StartCommand(t, env, "/bin/sh", "-c", script)
	require.Zero(t, p.Wait(), p.Stderr.String())
	stdout, _, _ := clitest.Run(t, append(env, "PGLATCH_FENCE=1", "PGLATCH_SLOT=1"), "lease", "run", "other", "-c", "echo [$PGLATCH_FENCE$PGLATCH_SLOT]")
	assert.Equal(t, "[]\n", stdout, "an outer share is of another lock")
	assert.Equal(t, "75\nread\n1\n[0]\n75\n", p.Stdout.String(), p.Stderr.String())
}

func TestTheFlagsOfSharesThatDoNotGoTogetherAreMisuse(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"--slots 2 --shared", "--shared --exclusive", "--slots 0", "--slots 1001"} {
		_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), strings.Fields("lease run gpu "+flags+" -- true")...)
		assert.Equal(t, 64, code, "%s: %s", flags, stderr)
	}
}

func TestALeaseCommandSaysWhichSlotItGot(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, env := clitest.LockServer(t, store)
	stdout, stderr, code := clitest.Run(t, env, "lease", "acquire", "gpu", "--slots", "2", "-o", "json")
	require.Zero(t, code, stderr)
	assert.Contains(t, strings.ReplaceAll(stdout, " ", ""), `"share_of":"gpu"`)
	assert.Contains(t, strings.ReplaceAll(stdout, " ", ""), `"fence":1`)
	stdout, stderr, code = clitest.Run(t, env, "lease", "acquire", "gpu", "--slots", "2")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "gpu::slot::0002")
	assert.Contains(t, stdout, "slot 2, fence 2")
}

// A killing client kills the first server when so many shares were granted.
type killing struct {
	sharetest.Remote
	kill func()
	left *atomic.Int64
}

func (k killing) Acquire(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error) {
	s, err := k.Remote.Acquire(ctx, r, wait)
	if err == nil && k.left.Add(-1) == 0 {
		k.kill()
	}
	return s, err
}

func TestSlotsAreSharedWhileAServerIsKilled(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	p := newPair(t)
	client := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	var left atomic.Int64
	left.Store(8)
	crowd := sharetest.Crowd{Clients: 6, Turns: 3, Slots: 2, TTL: time.Second, Writers: true}
	shares := crowd.Run(t.Context(), t, func(int) sharetest.Client {
		return killing{sharetest.Remote{Client: client}, func() { p.first.Signal(syscall.SIGKILL) }, &left}
	})
	assert.Greater(t, shares, 8, "the other server goes on")
}
