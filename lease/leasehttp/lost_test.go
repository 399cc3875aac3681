package leasehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
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
	l := acquire(t, cl, servetest.Ask("job", "a"))
	assert.Equal(t, uint64(1), l.Token, "the lost answers were of the same lease")
	assert.Len(t, transport.sent, 3)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

func TestAReleaseWhoseAnswerWasLostSucceedsAlsoAfterATakeover(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	var next lease.Lease
	transport.lose, transport.then = 1, func() { next = acquire(t, store, servetest.Ask("job", "b")) }
	require.NoError(t, cl.Release(t.Context(), l.Claim))

	require.ErrorIs(t, cl.Release(t.Context(), l.Claim), lease.ErrStale, "a release that is not the same request")
	record := recordOf(t, store, "job")
	assert.Equal(t, next.Claim, record.Claim)
	assert.Equal(t, lease.Held, record.State)
}

func TestWhatIsDeliveredTwiceHappensOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	cl, transport := lossyClient(t, store, leasehttp.ClientConfig{})
	transport.twice = true
	for token := uint64(1); token <= 3; token++ {
		l := acquire(t, cl, servetest.Ask("job", "a"))
		assert.Equal(t, token, l.Token)
		_, err := cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: servetest.Long})
		require.NoError(t, err)
		require.NoError(t, cl.Release(t.Context(), l.Claim))
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

func TestNothingIsSentForAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{h.URL}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 50 {
		_, err := cl.Get(t.Context(), "warm")
		require.ErrorIs(t, err, lease.ErrNotFound)
		_, err = cl.Acquire(ended, servetest.Ask(strconv.Itoa(i), "a"))
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := cl.Get(t.Context(), "warm")
	require.ErrorIs(t, err, lease.ErrNotFound)
	for i := range 50 {
		_, err := store.Get(t.Context(), strconv.Itoa(i))
		require.ErrorIs(t, err, lease.ErrNotFound)
	}
}

// grantOf is the answer to an acquire of "job" by "a".
func grantOf(token int, more string) string {
	return fmt.Sprintf(`{"lock":"job","owner_id":"a","lease_id":"i%d","fencing_token":%d,"acquired_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:00:01Z","ttl_remaining_ms":1000%s`,
		token, token, more)
}

func TestNothingStaysOfAnAnswerThatWasCutOff(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]string{
		{grantOf(1, `,"waited_ms":20000,"meta`), grantOf(1, "}")},
		{grantOf(1, `,"waited_ms":20000}`)}, // and what a server says of waiting moves nothing into the future
	} {
		var n atomic.Int32
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answers[n.Add(1)-1])
		}))
		cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{h.URL}})
		l := acquireWithRetry(t, cl, "job", "a", leasehttp.AcquireOptions{TTL: time.Second})
		require.LessOrEqual(t, l.Remaining(), time.Second)
		h.Close()
	}
}

// spoken lets a test say, for the connections of one listener, what follows each
// request, and then that the client ended a connection.
func spoken(t *testing.T, say func(w io.Writer, r *http.Request), ended func()) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer ended()
				defer func() { _ = c.Close() }()
				for r := bufio.NewReader(c); ; {
					request, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(request.Body)
					request.Body = io.NopCloser(bytes.NewReader(body))
					say(c, request)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

func nothing() {}

func answerOf(body string, header ...string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n" + strings.Join(header, "") + "\r\n" + body
}

// idOf is the header by which an answer names its request.
func idOf(r *http.Request) string {
	return "Pglatch-Request-Id: " + r.Header.Get("Pglatch-Request-Id") + "\r\n"
}

// A granter grants each request a token of its own, and the same one to all its sendings.
type granter struct {
	mu     sync.Mutex
	tokens map[string]int // by idempotency key
}

func (g *granter) token(r *http.Request) int {
	var body struct {
		Key string `json:"idempotency_key"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tokens == nil {
		g.tokens = make(map[string]int)
	}
	if g.tokens[body.Key] == 0 {
		g.tokens[body.Key] = len(g.tokens) + 1
	}
	return g.tokens[body.Key]
}

func TestAnAnswerThatNobodyAskedForIsNobodys(t *testing.T) {
	t.Parallel()
	for range 20 { // the second request can be faster than the end of its connection
		stray, sent := make(chan struct{}), make(chan struct{})
		var grants granter
		var requests atomic.Int32
		url := spoken(t, func(w io.Writer, r *http.Request) {
			_, _ = io.WriteString(w, answerOf(grantOf(grants.token(r), "}"), idOf(r)))
			if requests.Add(1) == 1 {
				<-stray
				_, _ = io.WriteString(w, answerOf(grantOf(99, "}"), idOf(r)))
				close(sent)
			}
		}, nothing)
		cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}})
		acquire(t, cl, servetest.Ask("job", "a"))
		close(stray)
		<-sent // on loopback it is there then
		l := acquire(t, cl, servetest.Ask("job", "a"))
		require.EqualValues(t, 2, l.Token)
	}
}

// So does one that names no request, of something that is no lock server of ours.
func TestAConnectionOnWhichSomethingCameUnaskedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	stray, ended := make(chan struct{}), make(chan struct{}, 2)
	var grants granter
	var requests atomic.Int32
	url := spoken(t, func(w io.Writer, r *http.Request) {
		_, _ = io.WriteString(w, answerOf(grantOf(grants.token(r), "}")))
		if requests.Add(1) == 1 {
			<-stray
			_, _ = io.WriteString(w, answerOf(grantOf(99, "}")))
		}
	}, func() { ended <- struct{}{} })
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1})
	acquire(t, cl, servetest.Ask("job", "a"))
	close(stray)
	<-ended
	l := acquire(t, cl, servetest.Ask("job", "a"))
	require.EqualValues(t, 2, l.Token)
}

func TestTheRestOfALongAnswerIsNoAnswer(t *testing.T) {
	t.Parallel()
	const most = 32 << 20
	inner := answerOf(grantOf(99, "}"))
	url := spoken(t, func(w io.Writer, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", most+len(inner))
		_, _ = io.WriteString(w, `{"locks":[]}`+strings.Repeat(" ", most-len(`{"locks":[]}`))+inner)
	}, nothing)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1})
	for range 2 {
		for _, err := range cl.List(t.Context(), lease.ListRequest{}) {
			require.ErrorContains(t, err, "too long")
		}
	}
}

func TestAnswersToAnotherRequestAreRefused(t *testing.T) {
	t.Parallel()
	url := spoken(t, func(w io.Writer, _ *http.Request) { _, _ = io.WriteString(w, answerOf(grantOf(7, "}"))) }, nothing)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "b"))
	require.ErrorContains(t, err, "another request")
	claim := lease.Claim{Name: "job", Holder: "a", ID: "i8", Token: 8}
	_, err = cl.Renew(t.Context(), lease.RenewRequest{Claim: claim, TTL: time.Second})
	require.ErrorContains(t, err, "another request")
	require.ErrorContains(t, cl.Release(t.Context(), claim), "another request")
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, h.URL+r.URL.RequestURI(), http.StatusPermanentRedirect)
	}))
	t.Cleanup(elsewhere.Close)
	_, err := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{elsewhere.URL}, Resends: -1}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "308")
	_, err = store.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrNotFound)
}

// A sending of which nothing is known can have been carried out, whatever the server
// says to the next.
func TestABusyServerSaysNothingOfAnEarlierSending(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"type":"`+wire.TypeBusy+`"}`)
	}))
	t.Cleanup(h.Close)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{h.URL}})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	require.NotErrorIs(t, err, lease.ErrBusy)
	_, err = cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorIs(t, err, lease.ErrBusy, "the first sending of another says that nothing was done")
}
