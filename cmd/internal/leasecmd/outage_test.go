package leasecmd_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestAnOutageOfPostgreSQLIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	server, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), server.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(dsn)
	require.NoError(t, err)
	_, address := clitest.Serve(t, nil, "--store", through)
	ttl := "3s" // what was sent into the silence can be carried out after it
	acquire := func(owner, wait string) *clitest.Program {
		return clitest.Start(t, nil, "lease", "acquire", "cron", "--ttl", ttl, "--owner", owner, "-w", wait, "--server", "http://"+address)
	}
	control := clitest.Start(t, nil, "lease", "run", "other", "--server", "http://"+address, "--", "true")
	require.Zero(t, control.Wait(), control.Stderr.String())
	proxy.Set(faultproxy.Hold)
	var all []*clitest.Program
	for _, owner := range []string{"first", "second", "third"} {
		all = append(all, acquire(owner, "1s"), acquire(owner, "0s"))
	}
	for _, p := range all {
		assert.Equal(t, 69, p.Wait(), p.Stderr.String())
		assert.NotContains(t, p.Stderr.String(), "held by")
	}
	proxy.Set(faultproxy.Pass)
	ttl = "1m"
	after := acquire("after", "25s")
	require.Zero(t, after.Wait(), "nobody had it: %s", after.Stderr.String())
	held := acquire("control", "0s")
	require.Equal(t, 75, held.Wait(), "now somebody has it: %s", held.Stderr.String())
}

// A full store can do nothing now.
type full struct{ lease.Store }

func (full) Acquire(context.Context, lease.AcquireRequest) (lease.Lease, error) {
	return lease.Lease{}, &lease.BusyError{Retry: 10 * time.Millisecond, Cause: errors.New("disk full")}
}

func TestAStoreThatCanDoNothingIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, full{leasetest.NewStore()})
	for _, args := range []string{"lease acquire job", "lease acquire job -w 100ms", "lease run job -n -- true", "lease run job -w 100ms -- true"} {
		_, stderr, code := clitest.Run(t, env, strings.Fields(args)...)
		assert.Equal(t, 69, code, "%s: %s", args, stderr)
	}
}

func TestTheCommandIsGoneBeforeALeaseThatCannotBeKeptExpires(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for _, times := range []string{"--ttl 20s --kill-after 2s", "--ttl 20s", "--ttl 20s --kill-after 10s"} {
		t.Run(times, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			server, env := clitest.LockServer(t, store)
			args := append(strings.Fields("lease run job "+times), "-c", "trap '' TERM; sleep 300 & echo shell=$$; echo child=$!; wait; wait; wait") // KILL ends it only
			p := clitest.Start(t, env, args...)
			shell, child := p.Number("shell"), p.Number("child")
			server.CloseClientConnections()
			server.Close()
			clitest.RequireDead(t, shell, child)
			record, err := store.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, lease.Held, record.State, "for another %v", record.Remaining)
			assert.Equal(t, 76, p.Wait())
			assert.Contains(t, p.Stderr.String(), "no renewal succeeded in time")
		})
	}
}
