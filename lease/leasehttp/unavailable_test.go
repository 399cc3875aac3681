package leasehttp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
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

// nobody is an address where nobody listens until the end of the test: it is that of the client's side of a connection.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return "http://" + conn.LocalAddr().String()
}

func TestWhatWasNotSentIsNotOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	at := nobody(t)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{at}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	claim := lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 1}
	for request, send := range map[string]func(context.Context) error{
		"acquire job": func(ctx context.Context) error { _, err := client.Acquire(ctx, servetest.Ask("job", "a")); return err },
		"renew job": func(ctx context.Context) error {
			_, err := client.Renew(ctx, lease.RenewRequest{Claim: claim, TTL: time.Minute})
			return err
		},
		"release job": func(ctx context.Context) error { return client.Release(ctx, claim) },
		"get job":     func(ctx context.Context) error { _, err := client.Get(ctx, "job"); return err },
	} {
		err := send(t.Context())
		require.ErrorIs(t, err, leasehttp.ErrUnavailable, request)
		require.ErrorIs(t, err, lease.ErrBusy, request)
		require.ErrorContains(t, err, request+": no lock server answers at "+at)
		require.ErrorContains(t, err, "start one: pglatch serve locks")
		assert.NotContains(t, err.Error(), "unknown")
	}
	_, err = client.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{MaxAttempts: 3})
	require.ErrorIs(t, err, leasehttp.ErrUnavailable)
	assert.Equal(t, 1, strings.Count(log.String(), "no lock server answers: trying again"), "it is told, once")
}

// The control: what was sent, and not answered, can have been carried out, unless it only reads.
func TestALostAnswerIsOfUnknownOutcomeUnlessItWasOfARead(t *testing.T) {
	t.Parallel()
	client, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	transport.gone.Store(true)
	_, err := client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "acquire job: outcome unknown")
	require.NotErrorIs(t, err, leasehttp.ErrUnavailable)
	_, err = client.Get(t.Context(), "job")
	require.ErrorIs(t, err, leasehttp.ErrUnavailable)
	assert.NotContains(t, err.Error(), "unknown")
}

// A server that cuts waits short is not asked without a pause.
func TestAServerWithAShortMaxWaitIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{MaxWait: time.Millisecond})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	_, err := client.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: servetest.Long})
	require.NoError(t, err)
	requests := &counting{}
	asking := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: requests.client()})
	_, err = asking.AcquireWithRetry(t.Context(), "job", "b", leasehttp.AcquireOptions{MaxWait: 2 * time.Second})
	require.ErrorIs(t, err, lease.ErrHeld)
	assert.Less(t, requests.sent.Load(), int64(12), "once in half a second to a second and a half")
}

// counting counts requests.
type counting struct{ sent atomic.Int64 }

func (c *counting) client() *http.Client { return &http.Client{Transport: c} }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}
