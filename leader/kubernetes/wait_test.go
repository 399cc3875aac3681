package kubernetes_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

// forbidden refuses requests of a verb.
func forbidden(verb string) func(string) apitest.Fault {
	return func(v string) apitest.Fault {
		if v == verb {
			return apitest.Fault{Status: http.StatusForbidden}
		}
		return apitest.Fault{}
	}
}

func waiting(t *testing.T, b *kubernetes.Backend) <-chan error {
	t.Helper()
	over := make(chan error, 1)
	ctx := within(t)
	go func() { over <- b.Wait(ctx) }()
	return over
}

// watched waits until the server has got so many watches.
func watched(t *testing.T, server *apitest.Server, n int) {
	t.Helper()
	await.Until(t, patience, func() bool { return server.Count(apitest.Watch) >= n })
}

func TestOneWatchServesManyWaits(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	refuse(t, b, "b")
	wait := func(d time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
	}
	const short = 20 * time.Millisecond
	for d := short; !kubernetes.Watching(b); d *= 2 { // on a busy machine it takes longer to open the watch
		wait(d)
	}
	opened := server.Count(apitest.Watch)
	for range 5 {
		require.NoError(t, a.Renew(within(t), "a", ttl))
		refuse(t, b, "b")
		wait(short)
	}
	require.Equal(t, opened, server.Count(apitest.Watch))
	over := waiting(t, b)
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, over))
	lead(t, b, "b")
}

func TestAWatchThatEndsIsBegunAgain(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	refuse(t, b, "b")
	over := waiting(t, b)
	for n := range 3 {
		watched(t, server, n+1)
		server.Forget() // 410 Gone, and what happened since is not reported
	}
	watched(t, server, 4)
	require.Empty(t, over)
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, over))
}

// What happens while no watch is open is seen nonetheless.
func TestAReleaseBetweenTwoWatchesIsSeen(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	refuse(t, b, "b")
	server.Forget() // the watch from what b saw begins with 410
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, waiting(t, b)))

	lead(t, a, "a")
	refuse(t, b, "b")
	server.Delete(namespace, name)
	require.NoError(t, receive(t, waiting(t, b)), "a Lease that is deleted is free")
}

func TestAForbiddenWatchIsPolledInsteadWithOneWarning(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.Inject(forbidden(apitest.Watch))
	a, b := newBackend(t, server), newBackend(t, server)
	var log bytes.Buffer
	b.Logger = slog.New(slog.NewTextHandler(&log, nil))
	lead(t, a, "a")
	refuse(t, b, "b")
	over := waiting(t, b)
	watched(t, server, 1)
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, over))
	lead(t, b, "b")
	require.NoError(t, b.Release(within(t), "b"))
	require.NoError(t, b.Close()) // begins anew, but for the warning
	lead(t, a, "a")
	refuse(t, b, "b")
	over = waiting(t, b)
	watched(t, server, 2)
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, over))
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	assert.Contains(t, log.String(), "grant the verb watch")
}

func TestOtherFailuresOfAWatchAreErrors(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	require.NoError(t, b.Wait(t.Context()), "before the first attempt nothing is known")
	lead(t, a, "a")
	refuse(t, b, "b")
	server.Inject(func(string) apitest.Fault { return apitest.Fault{Status: http.StatusInternalServerError} })
	require.ErrorContains(t, b.Wait(within(t)), "watching Lease default/election")
}

func TestAWatchThatIsNotAnsweredHangsNoLongerThanItsCtx(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	server.Inject(func(verb string) apitest.Fault {
		if verb == apitest.Watch {
			return apitest.Fault{Hold: never}
		}
		return apitest.Fault{}
	})
	a, b := newBackend(t, server), newBackend(t, server)
	lead(t, a, "a")
	refuse(t, b, "b")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- b.Wait(ctx) }()
	watched(t, server, 1)
	cancel()
	require.ErrorIs(t, receive(t, over), context.Canceled)
}

// A watch whose connection is dead reports no renewal: it is opened anew.
func TestAWatchThatIsSilentForALeaseIsOpenedAnew(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.Inject(once(apitest.Watch, apitest.Fault{Silent: true}))
	a, b := newBackend(t, server), newBackend(t, server)
	won, err := a.TryAcquire(within(t), "a", 5*time.Second) // long: it lasts until b waits
	require.NoError(t, err)
	require.True(t, won)
	refuse(t, b, "b")
	over := waiting(t, b)
	watched(t, server, 1)
	require.NoError(t, a.Renew(within(t), "a", ttl))
	require.NoError(t, receive(t, over), "the end of the lease that it knows of")
	refuse(t, b, "b")
	over = waiting(t, b)
	watched(t, server, 2)
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, receive(t, over))
	lead(t, b, "b")
}

// tardy holds the answer to one GET back.
type tardy struct {
	http.RoundTripper
	armed   atomic.Bool
	read    chan struct{} // closed when the server has answered
	deliver chan struct{} // when this is closed, the client gets it
}

func (s *tardy) RoundTrip(r *http.Request) (*http.Response, error) {
	late := r.URL.Query().Get("watch") == "" && s.armed.CompareAndSwap(true, false)
	response, err := s.RoundTripper.RoundTrip(r)
	if late {
		close(s.read)
		<-s.deliver
	}
	return response, err
}

func TestALateAnswerToAnInspectorHidesNothingFromWait(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, a *kubernetes.Backend, server *apitest.Server){
		"release": func(t *testing.T, a *kubernetes.Backend, _ *apitest.Server) {
			t.Helper()
			require.NoError(t, a.Release(within(t), "a"))
		},
		"deletion": func(_ *testing.T, _ *kubernetes.Backend, server *apitest.Server) { server.Delete(namespace, name) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			late := &tardy{read: make(chan struct{}), deliver: make(chan struct{})}
			config := server.Config()
			config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
				late.RoundTripper = rt
				return late
			}
			a, b := newBackend(t, server), kubernetes.NewBackend(newClient(t, config), namespace, name)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			lead(t, a, "a")
			refuse(t, b, "b")
			over := waiting(t, b)
			watched(t, server, 1)
			late.armed.Store(true)
			asked, ctx := make(chan error, 1), within(t)
			go func() {
				_, _, err := b.Leader(ctx)
				asked <- err
			}()
			receive(t, late.read)
			change(t, a, server)
			require.NoError(t, receive(t, over))
			close(late.deliver)
			require.NoError(t, receive(t, asked))
			require.NoError(t, receive(t, waiting(t, b)), "it is free still")
		})
	}
}
