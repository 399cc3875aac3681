package leasehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// lossyClient is a client whose answers get lost.
func lossyClient(t *testing.T, store lease.Store, c leasehttp.ClientConfig) (*leasehttp.Client, *lossy) {
	t.Helper()
	_, h := serve(t, leasehttp.Config{Store: store})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()}
	c.HTTPClient = &http.Client{Transport: transport}
	return client(t, h, c), transport
}

func TestAnAcquireWhoseAnswerWasLostGetsTheSameLease(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	transport.lose = 2
	l, err := cl.Acquire(t.Context(), ask("job", "a"))
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token, "the lost answers were of the same lease")
	assert.Len(t, transport.sent, 3)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

func TestAWaitingAcquireWhoseAnswerWasLostDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h := serve(t, leasehttp.Config{Store: store, PollInterval: -1})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: 1}
	lossy := client(t, h, leasehttp.ClientConfig{HTTPClient: &http.Client{Transport: transport}})
	other := client(t, h, leasehttp.ClientConfig{})
	done := make(chan error, 1)
	transport.then = func() { // somebody else stands in the line before the lossy one comes again
		go func() {
			l, err := other.AcquireWait(context.WithoutCancel(t.Context()), ask("job", "b"), bound)
			if err == nil {
				err = other.Release(context.WithoutCancel(t.Context()), l.Claim)
			}
			done <- err
		}()
		awaitWaiters(t, s, 1)
	}
	l, err := lossy.AcquireWait(t.Context(), ask("job", "a"), bound)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token)
	require.NoError(t, lossy.Release(t.Context(), l.Claim))
	require.NoError(t, <-done)
}

func TestAReleaseWhoseAnswerWasLostSucceedsAlsoAfterATakeover(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	l, err := cl.Acquire(t.Context(), ask("job", "a"))
	require.NoError(t, err)
	var next lease.Lease
	transport.lose, transport.then = 1, func() { next, err = store.Acquire(t.Context(), ask("job", "b")) }
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
		l, err := cl.Acquire(t.Context(), ask("job", "a"))
		require.NoError(t, err)
		assert.Equal(t, token, l.Token)
		_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: long})
		require.NoError(t, err)
		require.NoError(t, cl.Release(t.Context(), l.Claim))
	}
}

func TestAnOutcomeThatIsNotKnownIsNoErrorOfTheContract(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{Resends: -1})
	transport.lose = 1
	_, err := cl.Acquire(t.Context(), ask("job", "a"))
	require.ErrorIs(t, err, errLostAnswer)
	for _, known := range []error{lease.ErrHeld, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrInvalid, lease.ErrBusy, leasehttp.ErrDenied} {
		require.NotErrorIs(t, err, known)
	}
}

func TestAStoreThatFailsIsAnUnknownOutcomeAndItsTextStaysBehind(t *testing.T) {
	t.Parallel()
	store := &spy{Store: leasetest.NewStore(), err: errors.New("password=secret")}
	_, h := serve(t, leasehttp.Config{Store: store})
	a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.status)
	assert.Contains(t, a.body, "store-unavailable")
	assert.NotContains(t, a.body, "secret")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	_, err := client(t, h, leasehttp.ClientConfig{Resends: -1}).Acquire(t.Context(), ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	require.NotErrorIs(t, err, lease.ErrBusy)
}

func TestAStoreThatIsNotReadyHasDoneNothingForSure(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{lease.ErrNotReady, lease.ErrClosed} {
		_, h := serve(t, leasehttp.Config{Store: &spy{Store: leasetest.NewStore(), err: fmt.Errorf("host=secret: %w", failure)}})
		a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
		assert.Equal(t, http.StatusServiceUnavailable, a.status)
		assert.Contains(t, a.body, "store-not-ready")
		assert.NotContains(t, a.body, "secret")
		_, err := client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), ask("job", "a"))
		require.ErrorIs(t, err, lease.ErrNotReady)
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
		_, h := serve(t, leasehttp.Config{Store: &spy{Store: leasetest.NewStore(), err: want}})
		_, err := client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), ask("job", "a"))
		assert.Equal(t, want, err)
	}
	_, h := serve(t, leasehttp.Config{Store: &spy{Store: leasetest.NewStore(), err: &lease.BusyError{Retry: 30 * time.Millisecond}}})
	_, err := client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), ask("job", "a"))
	busy, ok := errors.AsType[*lease.BusyError](err)
	require.True(t, ok)
	assert.Equal(t, 30*time.Millisecond, busy.Retry)
}

func TestARenewalAfterTheEndIsRefusedAndSoIsAStaleRelease(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := serve(t, leasehttp.Config{Store: store})
	cl := client(t, h, leasehttp.ClientConfig{})
	l, err := cl.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: lease.MinTTL})
	require.NoError(t, err)
	next, err := cl.AcquireWait(t.Context(), ask("job", "b"), bound)
	require.NoError(t, err)
	_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: long})
	require.ErrorIs(t, err, lease.ErrStale)
	require.ErrorIs(t, cl.Release(t.Context(), l.Claim), lease.ErrStale)
	record, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, next.Claim, record.Claim)
}
