package leasehttp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// lossyClient is a client whose answers get lost.
func lossyClient(t *testing.T, store lease.Store, c leasehttp.ClientConfig) (*leasehttp.Client, *lossy) {
	t.Helper()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()}
	c.HTTPClient = &http.Client{Transport: transport}
	return servetest.Client(t, h, c), transport
}

func TestAnAcquireWhoseAnswerWasLostGetsTheSameLease(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	transport.lose = 2
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token, "the lost answers were of the same lease")
	assert.Len(t, transport.sent, 3)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

func TestAWaitingAcquireWhoseAnswerWasLostDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: 1}
	lossy := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: &http.Client{Transport: transport}})
	other := servetest.Client(t, h, leasehttp.ClientConfig{})
	done := make(chan error, 1)
	transport.then = func() { // somebody else stands in the line before the lossy one comes again
		go func() {
			l, err := other.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", "b"), servetest.Bound)
			if err == nil {
				err = other.Release(context.WithoutCancel(t.Context()), l.Claim)
			}
			done <- err
		}()
		servetest.AwaitWaiters(t, s, 1)
	}
	l, err := lossy.AcquireWait(t.Context(), servetest.Ask("job", "a"), servetest.Bound)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token)
	require.NoError(t, lossy.Release(t.Context(), l.Claim))
	require.NoError(t, <-done)
}

func TestAReleaseWhoseAnswerWasLostSucceedsAlsoAfterATakeover(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	var next lease.Lease
	transport.lose, transport.then = 1, func() { next, err = store.Acquire(t.Context(), servetest.Ask("job", "b")) }
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	require.NoError(t, err)

	require.ErrorIs(t, cl.Release(t.Context(), l.Claim), lease.ErrStale, "a release that is not the same request")
	record, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, next.Claim, record.Claim)
	assert.Equal(t, lease.Held, record.State)
}

func TestWhatIsDeliveredTwiceHappensOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	transport.twice = true
	for token := uint64(1); token <= 3; token++ {
		l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
		require.NoError(t, err)
		assert.Equal(t, token, l.Token)
		_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: servetest.Long})
		require.NoError(t, err)
		require.NoError(t, cl.Release(t.Context(), l.Claim))
	}
}

func TestAnOutcomeThatIsNotKnownIsNoErrorOfTheContract(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{Resends: -1})
	transport.lose = 1
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorIs(t, err, errLostAnswer)
	for _, known := range []error{lease.ErrHeld, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrInvalid, lease.ErrBusy, leasehttp.ErrDenied} {
		require.NotErrorIs(t, err, known)
	}
}

func TestErrorsOfTheStoreArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, want := range []error{
		&lease.HeldError{Name: "job", Holder: "b", Remaining: 3 * time.Second, Retry: 20 * time.Millisecond},
		&lease.HeldError{Name: "job", Remaining: time.Second, Retry: time.Millisecond},
		&lease.StaleError{Name: "job", Holder: true, Token: true},
		&lease.StaleError{Name: "job", ID: true},
		&lease.StaleError{Name: "job", Released: true},
		&lease.ExpiredError{Name: "job", At: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)},
		&lease.NotFoundError{Name: "job"},
		&lease.InvalidError{Field: "TTL", Value: "0s", Remedy: "use 1s"},
		&lease.InvalidError{Field: "Holder", Value: "empty", Remedy: "give one"},
	} {
		_, h := servetest.Serve(t, leaseserver.Config{Store: &servetest.Spy{Store: leasetest.NewStore(), Err: want}})
		_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
		assert.Equal(t, want, err)
	}
	_, h := servetest.Serve(t, leaseserver.Config{Store: &servetest.Spy{Store: leasetest.NewStore(), Err: &lease.BusyError{Retry: 30 * time.Millisecond}}})
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
	busy, ok := errors.AsType[*lease.BusyError](err)
	require.True(t, ok)
	assert.Equal(t, 30*time.Millisecond, busy.Retry)
}
