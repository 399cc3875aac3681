package kubernetes_test

import (
	"context"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

// once makes a fault happen to the first request of a verb from now on.
func once(verb string, fault apitest.Fault) func(string) apitest.Fault {
	done := false // the server calls it under its mutex
	return func(v string) apitest.Fault {
		if done || v != verb {
			return apitest.Fault{}
		}
		done = true
		return fault
	}
}

// A claim arrives after its node has given up: what Release did must have made it
// void.
func TestAClaimThatArrivesAfterReleaseTakesNothing(t *testing.T) {
	t.Parallel()
	for verb, prepare := range map[string]func(t *testing.T, s *apitest.Server){
		apitest.Create: func(*testing.T, *apitest.Server) {},
		apitest.Update: func(t *testing.T, s *apitest.Server) {
			t.Helper()
			first := newBackend(t, s)
			lead(t, first, "first")
			require.NoError(t, first.Release(within(t), "first"))
		},
	} {
		for _, released := range []bool{true, false} { // false is the control
			t.Run(verb+map[bool]string{true: " and released", false: ", the control"}[released], func(t *testing.T) {
				t.Parallel()
				server := newServer(t)
				a, b := newBackend(t, server), newBackend(t, server)
				prepare(t, server)
				land := make(chan struct{})
				arrived := make(chan struct{})
				server.Inject(once(verb, apitest.Fault{Hold: land, Arrived: arrived}))
				ctx, cancel := context.WithCancel(t.Context())
				attempt := make(chan error)
				go func() {
					_, err := a.TryAcquire(ctx, "a", ttl)
					attempt <- err
				}()
				receive(t, arrived)
				cancel()
				require.Error(t, receive(t, attempt))
				if released {
					require.NoError(t, a.Release(within(t), "a"))
				}
				close(land)
				if released {
					lead(t, b, "b")
					require.NoError(t, b.Renew(within(t), "b", ttl))
					return
				}
				await.Until(t, patience, func() bool { return holder(server) != "" })
				refuse(t, b, "b")
				require.NoError(t, a.Release(within(t), "a"), "it finds its own")
				lead(t, b, "b")
			})
		}
	}
}

func TestAnAttemptWhoseAnswerIsLostIsUndoneByReleaseOrRepeated(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{apitest.Create, apitest.Update} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			a, b := newBackend(t, server), newBackend(t, server)
			if verb == apitest.Update {
				lead(t, b, "b")
				require.NoError(t, b.Release(within(t), "b"))
			}
			server.Inject(once(verb, apitest.Fault{Lose: true}))
			won, err := a.TryAcquire(within(t), "a", ttl)
			require.Error(t, err)
			require.False(t, won)
			require.NotEmpty(t, holder(server), "it was written")
			refuse(t, b, "b")
			require.NoError(t, a.Release(within(t), "a"))
			lead(t, b, "b")
			require.NoError(t, b.Release(within(t), "b"))

			server.Inject(once(apitest.Update, apitest.Fault{Lose: true}))
			_, err = a.TryAcquire(within(t), "a", ttl)
			require.Error(t, err)
			require.NoError(t, a.Close())
			refuse(t, b, "b")
			lead(t, a, "a") // its own, whatever became of the attempt before
			require.NoError(t, a.Renew(within(t), "a", ttl))
			refuse(t, b, "b")
		})
	}
}

func TestARenewalWhoseAnswerIsLostDoesNotCostLeadership(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	term := a.Term()
	server.Inject(once(apitest.Update, apitest.Fault{Lose: true}))
	err := a.Renew(within(t), "a", ttl)
	require.Error(t, err)
	require.NotErrorIs(t, err, leader.ErrLost)
	require.NoError(t, a.Renew(within(t), "a", ttl))
	server.Inject(once(apitest.Update, apitest.Fault{Lose: true}))
	require.Error(t, a.Release(within(t), "a"))
	require.NoError(t, a.Release(within(t), "a"), "it was released already")
	lead(t, b, "b")
	assert.True(t, b.Term().Follows(term))
	assert.True(t, b.CleanStart())
}

func TestErrorsOfTheServerAreNoLoss(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a := newBackend(t, server)
	lead(t, a, "a")
	for _, fault := range []apitest.Fault{{Status: http.StatusInternalServerError}, {Status: http.StatusForbidden}, {Drop: true}} {
		server.Inject(func(string) apitest.Fault { return fault })
		err := a.Renew(within(t), "a", ttl)
		require.Error(t, err)
		require.NotErrorIs(t, err, leader.ErrLost)
		server.Inject(nil)
		require.NoError(t, a.Renew(within(t), "a", ttl))
	}
	// Something else writes the Lease, again and again.
	server.Inject(once(apitest.Update, apitest.Fault{Status: http.StatusConflict}))
	require.NoError(t, a.Renew(within(t), "a", ttl))
	server.Inject(func(verb string) apitest.Fault {
		if verb == apitest.Update {
			return apitest.Fault{Status: http.StatusConflict}
		}
		return apitest.Fault{}
	})
	require.NotErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)
}

func TestALeaseThatIsDeletedIsLostAndTermsRise(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
	refuse(t, a, "a")
	server.Delete(namespace, name)
	require.ErrorIs(t, b.Renew(within(t), "b", ttl), leader.ErrLost)
	lead(t, a, "a")
	assert.True(t, a.Term().Follows(b.Term()), "%v after %v", a.Term(), b.Term())
	assert.False(t, a.CleanStart())
	server.Delete(namespace, name)
	require.NoError(t, a.Release(within(t), "a"))
	require.Nil(t, server.Lease(namespace, name))
}

// holder is whoever holds the Lease, "" if nobody does.
func holder(server *apitest.Server) string {
	if l := server.Lease(namespace, name); l != nil && l.Spec.HolderIdentity != nil {
		return *l.Spec.HolderIdentity
	}
	return ""
}

func TestAnAttemptOfALeaderThatFailsLeavesWhatReleaseFrees(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	server.Inject(once(apitest.Get, apitest.Fault{Status: http.StatusForbidden}))
	_, err := a.TryAcquire(within(t), "a", ttl)
	require.Error(t, err)
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost, "an attempt that failed does not lead")
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
	assert.False(t, b.CleanStart(), "nobody vouches for the end of the first term")
}

func TestALateRenewalThatMeetsTheNextClaimIsOnesOwn(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	land, arrived := make(chan struct{}), make(chan struct{})
	server.Inject(once(apitest.Update, apitest.Fault{Hold: land, Arrived: arrived}))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- a.Renew(ctx, "a", ttl) }()
	receive(t, arrived)
	cancel()
	require.Error(t, receive(t, over))
	require.NoError(t, a.Close())
	before := server.Lease(namespace, name).ResourceVersion
	server.Inject(once(apitest.Update, apitest.Fault{Before: func() {
		close(land)
		await.Until(t, patience, func() bool { return server.Lease(namespace, name).ResourceVersion != before })
	}}))
	won, err := a.TryAcquire(within(t), "a", ttl)
	require.ErrorContains(t, err, "executed late", "nobody else leads")
	require.False(t, won)
	refuse(t, b, "b")
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
}

func TestANamespaceThatIsMissingIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	b := newBackend(t, server)
	server.Inject(func(string) apitest.Fault { return apitest.Fault{Status: http.StatusNotFound} })
	won, err := b.TryAcquire(within(t), "b", ttl)
	require.ErrorContains(t, err, "is there a namespace "+namespace+"?")
	require.False(t, won)
	require.NoError(t, b.Release(within(t), "b"), "it holds nothing")
	server.Inject(nil)
	lead(t, b, "b")

	// The control: a Lease that is deleted before it is written is a lost race.
	require.NoError(t, b.Release(within(t), "b"))
	server.Inject(once(apitest.Update, apitest.Fault{Status: http.StatusNotFound, Before: func() { server.Delete(namespace, name) }}))
	refuse(t, b, "b")
	lead(t, b, "b")
}

func TestAfterTheGreatestTermTheLeaseIsToBeDeleted(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	nobody, seconds, last := "", int32(1), int32(math.MaxInt32)
	_, err := leasesOf(t, server).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &nobody, LeaseDurationSeconds: &seconds, LeaseTransitions: &last},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	a, b := newBackend(t, server), newBackend(t, server)
	for _, who := range []*kubernetes.Backend{a, b} {
		_, err = who.TryAcquire(within(t), "x", ttl)
		require.ErrorContains(t, err, "leaseTransitions 2147483647: delete it")
	}
	server.Delete(namespace, name)
	lead(t, a, "a")
	assert.Equal(t, uint64(1), a.Term().Uint64())
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b") // which saw the old one and the new one
	assert.Equal(t, uint64(2), b.Term().Uint64())
}
