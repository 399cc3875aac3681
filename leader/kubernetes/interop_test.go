package kubernetes_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

// A stranger is an elector of client-go on the same Lease.
type stranger struct {
	leads   chan struct{} // closed when it leads
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// strangersLease is the lease of a stranger whose end a test waits for. Another one's is long: a pause of the machine does not end it.
const (
	strangersLease = 3 * time.Second
	longLease      = 8 * time.Second
)

func newStranger(t *testing.T, server *apitest.Server, lease time.Duration, release bool) *stranger {
	t.Helper()
	s := &stranger{leads: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: newClient(t, server.Config()).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "stranger"},
		},
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { close(s.leads); <-ctx.Done() }, OnStoppedLeading: func() {},
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() { elector.Run(ctx) })
	t.Cleanup(s.stop)
	return s
}

func (s *stranger) stop() {
	s.cancel()
	s.running.Wait()
}

func TestWeAndClientGoHandOverToEachOther(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	ours := newBackend(t, server)
	lead(t, ours, "ours")
	first := ours.Term()
	theirs := newStranger(t, server, longLease, true)
	select {
	case <-theirs.leads:
		require.Fail(t, "two leaders")
	case <-time.After(time.Second): // ten of its attempts
	}
	require.NoError(t, ours.Renew(within(t), "ours", ttl))
	released := time.Now()
	require.NoError(t, ours.Release(within(t), "ours"))
	receive(t, theirs.leads)
	t.Log("client-go leads after", time.Since(released))

	refuse(t, ours, "ours")
	over := waiting(t, ours)
	select {
	case err := <-over:
		require.Fail(t, "Wait returns while client-go's elector renews", "%v", err)
	case <-time.After(longLease + time.Second):
	}
	require.ErrorIs(t, ours.Renew(within(t), "ours", ttl), leader.ErrLost)
	holder, ok, err := ours.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "stranger", holder.Identity)
	released = time.Now()
	theirs.stop()
	require.NoError(t, receive(t, over))
	lead(t, ours, "ours")
	t.Log("we lead after", time.Since(released))
	assert.True(t, ours.Term().Follows(leader.Term{N: first.N + 1}), "%v, two after %v", ours.Term(), first)
	assert.False(t, ours.CleanStart(), "client-go releases while work may go on")
}

func TestWeAndClientGoWaitForEachOthersLeaseToEnd(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	dead := newBackend(t, server)
	began := time.Now()
	won, err := dead.TryAcquire(within(t), "dead", 2*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, dead.Renew(within(t), "dead", 2*time.Second))
	theirs := newStranger(t, server, strangersLease, false)
	receive(t, theirs.leads)
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	require.ErrorIs(t, dead.Renew(within(t), "dead", 2*time.Second), leader.ErrLost)

	began = time.Now()
	theirs.stop() // without a release
	ours := newBackend(t, server)
	refuse(t, ours, "ours")
	require.NoError(t, receive(t, waiting(t, ours)))
	lead(t, ours, "ours")
	assert.GreaterOrEqual(t, time.Since(began), strangersLease)
}

// The suffix is what distinguishes two processes of one pod name from each other; without
// one they are one to client-go, which is the control.
func TestTwoOfOneIdentityExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "stranger")
	refuse(t, b, "stranger")
	require.NoError(t, b.Release(within(t), "stranger"))
	require.NoError(t, a.Renew(within(t), "stranger", ttl))
	require.NoError(t, a.Release(within(t), "stranger"))

	first, second := newStranger(t, server, longLease, false), newStranger(t, server, longLease, false)
	receive(t, first.leads)
	receive(t, second.leads)
	refuse(t, a, "stranger")
}

func TestOneOfTwoThatCreateTheLeaseLeads(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	var second error
	server.Inject(once(apitest.Create, apitest.Fault{Before: func() {
		_, second = b.TryAcquire(context.Background(), "b", ttl)
	}}))
	refuse(t, a, "a")
	require.NoError(t, second)
	require.NoError(t, b.Renew(within(t), "b", ttl))
}

func TestOneOfTwoThatTakeAFreeLeaseLeads(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "a"))
	var won bool
	server.Inject(once(apitest.Update, apitest.Fault{Before: func() { won, _ = b.TryAcquire(context.Background(), "b", ttl) }}))
	refuse(t, a, "a")
	require.True(t, won)

	// Its own claim comes before itself, when a client repeats a request.
	require.NoError(t, b.Release(within(t), "b"))
	server.Inject(once(apitest.Update, apitest.Fault{Again: true}))
	lead(t, a, "a")
	require.NoError(t, a.Renew(within(t), "a", ttl))
}

func TestALeaseIsWholeSeconds(t *testing.T) {
	t.Parallel()
	b := newBackend(t, newServer(t))
	for _, ttl := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 0, -time.Second} {
		_, err := b.TryAcquire(within(t), "a", ttl)
		var invalid *leader.ConfigError
		require.ErrorAs(t, err, &invalid)
		assert.ErrorContains(t, err, "use whole seconds")
		require.ErrorAs(t, b.Renew(within(t), "a", ttl), &invalid)
	}
}
