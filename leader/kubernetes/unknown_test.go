package kubernetes_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
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
				require.Eventually(t, func() bool { return holder(server) != "" }, patience, time.Millisecond)
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
