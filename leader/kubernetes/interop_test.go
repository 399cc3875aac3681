package kubernetes_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes"
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

type renewer interface {
	Renew(l *coordinationv1.Lease, wall time.Time, boot time.Duration, seconds int32) *coordinationv1.Lease
}

// plain is the control: what a Backend would write without more ado.
type plain struct{}

func (plain) Renew(l *coordinationv1.Lease, wall time.Time, _ time.Duration, _ int32) *coordinationv1.Lease {
	next, stamp := l.DeepCopy(), metav1.NewMicroTime(wall)
	next.Spec.RenewTime = &stamp
	return next
}

// early replays renewals, by a leader whose wall clock is set now and then, before an
// observer that looks now and then and compares as client-go's electors do. It returns
// by how much the observer took the lease for expired too early, at most.
func early(random *rand.Rand, step time.Duration, leader renewer) (worst time.Duration) {
	const ttl = time.Second
	start := time.Unix(1_000_000, 0)
	at, skew := start, time.Duration(0)
	seconds, stamp, holder, transitions := int32(ttl/time.Second), metav1.NewMicroTime(at), "a", int32(1)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &stamp, AcquireTime: &stamp, LeaseTransitions: &transitions,
	}}
	var last string
	var observed time.Time
	for range 300 {
		next := at.Add(time.Duration(random.Int64N(int64(step))))
		for look := at; look.Before(next); look = look.Add(time.Duration(random.Int64N(int64(time.Second)))) {
			record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
			raw, _ := json.Marshal(record)
			if string(raw) != last {
				last, observed = string(raw), look
			}
			expiry := observed.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
			worst = max(worst, at.Add(ttl).Sub(expiry))
		}
		at = next
		if random.IntN(20) == 0 {
			skew = time.Duration(random.Int64N(int64(4*time.Second))) - 2*time.Second
		}
		lease = leader.Renew(lease, at.Add(skew), at.Sub(start), seconds)
	}
	return worst
}

func TestClientGoNeverExpectsTheEndOfALeaseTooEarly(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var control time.Duration
	for _, step := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		for range soak.Size(t, 30, 300) {
			require.LessOrEqual(t, early(random, step, new(kubernetes.Renewer)), time.Duration(0))
		}
	}
	for i := 0; i < 900 && control <= 500*time.Millisecond; i++ {
		control = max(control, early(random, 700*time.Millisecond, plain{}))
	}
	require.Greater(t, control, 500*time.Millisecond, "the control")
	t.Log("control: early by", control)
}

func TestOnlyItsOwnSuffixIsHiddenFromAnIdentity(t *testing.T) {
	t.Parallel()
	for holder, identity := range map[string]string{
		"node-1_abcdefghij234567":                   "node-1",
		"a_b_abcdefghij234567":                      "a_b",
		"_abcdefghij234567":                         "",
		"host_d5a6ca1e-6b8f-4d8a-9f6e-1c1c5f1f2d3e": "host_d5a6ca1e-6b8f-4d8a-9f6e-1c1c5f1f2d3e",
		"host_ABCDEFGHIJ234567":                     "host_ABCDEFGHIJ234567",
		"":                                          "",
	} {
		assert.Equal(t, identity, kubernetes.IdentityOf(holder))
	}
}

func leasesOf(t *testing.T, server *apitest.Server) coordinationclient.LeaseInterface {
	t.Helper()
	return newClient(t, server.Config()).CoordinationV1().Leases(namespace)
}

// A record is worth its duration from when it was first seen, whatever it says
// about the time: an hour ago would be expired, and an hour from now would last one.
func TestTheClockOfTheLeaderIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"slow": -time.Hour, "fast": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			holder, seconds, stamp := "stranger", int32(3), metav1.NewMicroTime(time.Now().Add(wrong))
			_, err := leasesOf(t, server).Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "election"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &stamp},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			b := newBackend(t, server)
			began := time.Now()
			refuse(t, b, "b")
			require.NoError(t, receive(t, waiting(t, b)))
			assert.GreaterOrEqual(t, time.Since(began), 3*time.Second)
			lead(t, b, "b")
			assert.Equal(t, uint64(1), b.Term().Uint64())
		})
	}
}

// An elector that leaves leaseTransitions as they are took the Lease after an orderly end, and died.
func TestATermOfAnElectorThatDoesNotCountIsNotTheOneThatWasReleased(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "a"))
	l, holder := server.Lease(namespace, name), "stranger"
	l.Spec.HolderIdentity = &holder // for the second that a release leaves
	_, err := leasesOf(t, server).Update(t.Context(), l, metav1.UpdateOptions{})
	require.NoError(t, err)
	refuse(t, b, "b")
	require.NoError(t, receive(t, waiting(t, b)))
	lead(t, b, "b")
	assert.False(t, b.CleanStart())
}

// Somebody labels the Lease of a leader that is gone, again and again.
func TestAWriteThatIsNoRenewalProlongsNothing(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	won, err := a.TryAcquire(within(t), "a", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	refuse(t, b, "b")
	over := waiting(t, b)
	api := leasesOf(t, server)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for labels := 0; ; labels++ {
		select {
		case err := <-over:
			require.NoError(t, err)
			require.Positive(t, labels)
			lead(t, b, "b")
			return
		case <-tick.C:
			l := server.Lease(namespace, name)
			metav1.SetMetaDataLabel(&l.ObjectMeta, "seen", time.Now().Format("150405.000000"))
			_, err := api.Update(t.Context(), l, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Less(t, labels, 1000, "it is prolonged")
		}
	}
}
