package leasehttp_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// A remote is a store behind a server. Sweeps are the server's business alone.
type remote struct {
	*leasehttp.Client
	behind lease.Store
}

func (r remote) Sweep(ctx context.Context, q lease.SweepRequest) (lease.SweepResult, error) {
	return r.behind.Sweep(ctx, q)
}

func TestAClientAndItsServerAreAStore(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, leasetest.Harness{
		Precision: time.Millisecond,
		TTL:       time.Second,
		New: func(t *testing.T) lease.Store {
			t.Helper()
			store := leasetest.NewStore()
			_, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: servetest.Token}}}) // or records would lack ids
			return remote{servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token}), store}
		},
	})
}

func TestMain(m *testing.M) { leak.Main(m) }

func TestClientConfigsThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]leasehttp.ClientConfig{
		"BaseURLs is":    {},
		"BaseURLs has":   {BaseURLs: []string{"http://localhost", "ftp://localhost"}},
		"has a user":     {BaseURLs: []string{"http://a:b@localhost"}},
		"absolute path":  {BaseURLs: []string{"unix:locks.sock"}},
		"have its Trans": {BaseURLs: []string{"unix:///x"}, HTTPClient: http.DefaultClient},
		"in the clear":   {BaseURLs: []string{"http://locks.example"}, Token: servetest.Token},
		"TTL is 1ns":     {BaseURLs: []string{"http://localhost"}, TTL: 1},
		"both set":       {BaseURLs: []string{"https://localhost"}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, HTTPClient: http.DefaultClient},
		"Timeout is -1s": {BaseURLs: []string{"http://localhost"}, Timeout: -time.Second},
	} {
		_, err := leasehttp.NewClient(c)
		require.ErrorContains(t, err, want)
	}
}

var errLostAnswer = errors.New("the answer was lost")

// A lossy transport loses answers of requests that were carried out.
type lossy struct {
	http.RoundTripper
	mu    sync.Mutex
	lose  int         // of the next answers
	twice bool        // deliver every request two times
	then  func()      // after the loss of an answer; nil = nothing
	sent  []string    // paths
	gone  atomic.Bool // nothing arrives any more
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.gone.Load() {
		return nil, errLostAnswer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, r.URL.Path)
	if l.twice {
		again := r.Clone(r.Context())
		again.Body, _ = r.GetBody()
		if response, err := l.RoundTripper.RoundTrip(again); err == nil {
			_ = response.Body.Close()
		}
	}
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || l.lose == 0 {
		return response, err
	}
	l.lose--
	_ = response.Body.Close()
	if l.then != nil {
		l.then()
	}
	return nil, errLostAnswer
}

func (l *lossy) CloseIdleConnections() {
	if t, ok := l.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// A state is what a holder writes down to survive its own death.
type state struct{ Name, Owner, ID string }

const (
	holderServer = "LEASEHTTP_HOLDER_SERVER"
	holderState  = "LEASEHTTP_HOLDER_STATE"
)

// It is a process of TestAHolderThatWasKilledTakesUpItsLeaseAgain.
func TestAHolderThatIsKilled(t *testing.T) {
	url := os.Getenv(holderServer)
	if url == "" {
		t.Skip("TestAHolderThatWasKilledTakesUpItsLeaseAgain runs it")
	}
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}})
	l := acquireWithRetry(t, cl, "job", "worker", leasehttp.AcquireOptions{TTL: servetest.Long, Metadata: map[string]string{"part": "7"}})
	data, err := json.Marshal(state{"job", "worker", l.Claim().ID})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(os.Getenv(holderState), data, 0o600))
	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	fmt.Printf("\nholds %d\n", l.FencingToken())
	<-work.Done()
}

func TestAHolderThatWasKilledTakesUpItsLeaseAgain(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	file := filepath.Join(t.TempDir(), "state")
	p := proctest.Tests(t, "^TestAHolderThatIsKilled$", holderServer+"="+h.URL, holderState+"="+file)
	var token uint64
	_, err := fmt.Sscanf(p.Says("holds"), "holds %d", &token)
	require.NoError(t, err)
	p.Kill()
	require.Equal(t, 128+9, p.Wait(), "it lived until then")

	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	_, err = cl.Acquire(t.Context(), servetest.Ask("job", "worker"))
	require.ErrorIs(t, err, lease.ErrHeld, "the control: who acquires anew waits for the end of its own lease")
	var saved state
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &saved))
	before := recordOf(t, store, "job")
	l, err := cl.Adopt(t.Context(), saved.Name, saved.Owner, saved.ID)
	require.NoError(t, err)
	after := recordOf(t, store, "job")
	assert.Equal(t, before.Version, after.Version, "nothing is prolonged")
	assert.Equal(t, token, l.FencingToken())
	assert.Equal(t, map[string]string{"part": "7"}, l.Last().Metadata)
	assert.Positive(t, l.Remaining())
	assert.LessOrEqual(t, l.Remaining(), servetest.Long*9/10, "the margin is a tenth")

	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: time.Millisecond})
	await.Until(t, await.Soon, func() bool {
		record, err := store.Get(t.Context(), "job")
		return err == nil && record.Version > before.Version
	})
	assert.Equal(t, token, leasehttp.FencingToken(work))
	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	_, err = cl.Adopt(t.Context(), saved.Name, saved.Owner, saved.ID)
	require.ErrorIs(t, err, lease.ErrStale)
}

func TestALeaseIsAdoptedByItsHolderAndIDAlone(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	transport.lose = 2
	adopted, err := cl.Adopt(t.Context(), "job", "a", l.ID)
	require.NoError(t, err, "what changes nothing is asked again")
	assert.Equal(t, l.Claim, adopted.Claim())
	for want, c := range map[error]lease.Claim{
		lease.ErrStale:    {Name: "job", Holder: "a", ID: "x"},
		lease.ErrNotFound: {Name: "other", Holder: "a", ID: l.ID},
		lease.ErrInvalid:  {Name: "job", Holder: "a"},
	} {
		_, err = cl.Adopt(t.Context(), c.Name, c.Holder, c.ID)
		require.ErrorIs(t, err, want)
	}
	short := acquire(t, cl, lease.AcquireRequest{Name: "short", Holder: "a", TTL: lease.MinTTL})
	await.Until(t, await.Soon, func() bool {
		_, err = cl.Adopt(context.WithoutCancel(t.Context()), "short", "a", short.ID)
		return err != nil
	})
	require.ErrorIs(t, err, lease.ErrExpired)
}

func TestASlotIsKeptByHeartbeatsAndReleasedOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, _, cl := served(t, leaseserver.Config{Store: store})
	slots := leasehttp.AcquireOptions{Slots: 2, TTL: time.Minute, MaxWait: servetest.Bound}
	l := acquireWithRetry(t, cl, "job", "a", slots)
	assert.Equal(t, 1, l.Share().Slot)
	assert.Equal(t, "job", l.Share().Lock)
	assert.Positive(t, l.Share().Fence)
	assert.Positive(t, l.Remaining())
	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 10 * time.Millisecond})
	expires := l.Last().ExpiresAt
	await.Until(t, await.Soon, func() bool { return l.Last().ExpiresAt.After(expires) })
	require.NoError(t, work.Err())
	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	record := recordOf(t, store, shared.SlotName("job", 1))
	assert.Equal(t, lease.Free, record.State)
}

func TestReadersShareALockAndAWriterHasItAlone(t *testing.T) {
	t.Parallel()
	_, _, cl := served(t, leaseserver.Config{})
	once := leasehttp.AcquireOptions{MaxAttempts: 1, NoLongPoll: true, Shared: true}
	alone := once
	alone.Shared, alone.Exclusive = false, true
	for _, reader := range []string{"a", "b"} {
		l := acquireWithRetry(t, cl, "job", reader, once)
		defer func() { assert.NoError(t, cl.ReleaseOnce(t.Context(), l)) }()
	}
	_, err := cl.AcquireWithRetry(t.Context(), "job", "writer", alone)
	require.ErrorIs(t, err, lease.ErrHeld)
	writer := acquireWithRetry(t, cl, "other", "writer", alone)
	_, err = cl.AcquireWithRetry(t.Context(), "other", "reader", once)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, cl.ReleaseOnce(t.Context(), writer))
	alone.Shared = true
	_, err = cl.AcquireWithRetry(t.Context(), "other", "both", alone)
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestAShareWhoseAnswerWasLostIsGotAgain(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
		r := shared.Request{AcquireRequest: servetest.Ask("job", "a"), Slots: 3, Exclusive: exclusive}
		if exclusive {
			r.Slots = 0
		}
		transport.lose = 2
		s, err := cl.AcquireShare(t.Context(), r, 0)
		require.NoError(t, err)
		assert.Len(t, transport.sent, 3)
		assert.Equal(t, uint64(1), s.Token, "the lost answers were of the same lease")
		require.NoError(t, cl.Release(t.Context(), s.Claim))
		all := shared.Request{AcquireRequest: servetest.Ask("job", "b"), Exclusive: true}
		_, err = cl.AcquireShare(t.Context(), all, 0)
		require.NoError(t, err, "nothing else was taken")
	}
}

func acquire(tb testing.TB, s interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
}, r lease.AcquireRequest,
) lease.Lease {
	tb.Helper()
	l, err := s.Acquire(tb.Context(), r)
	require.NoError(tb, err)
	return l
}

func recordOf(tb testing.TB, s interface {
	Get(ctx context.Context, name string) (lease.Record, error)
}, name string,
) lease.Record {
	tb.Helper()
	r, err := s.Get(tb.Context(), name)
	require.NoError(tb, err)
	return r
}

func acquireWithRetry(tb testing.TB, cl *leasehttp.Client, name, owner string, options leasehttp.AcquireOptions) *leasehttp.Lease {
	tb.Helper()
	l, err := cl.AcquireWithRetry(tb.Context(), name, owner, options)
	require.NoError(tb, err)
	return l
}

// served serves a server to a client.
func served(t *testing.T, c leaseserver.Config) (*leaseserver.Server, *httptest.Server, *leasehttp.Client) {
	t.Helper()
	s, h := servetest.Serve(t, c)
	return s, h, servetest.Client(t, h, leasehttp.ClientConfig{})
}
