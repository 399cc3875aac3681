package leaseserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// keyed is a request by "a" for job that can be sent again.
func keyed(ttl time.Duration) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: "a", TTL: ttl, IdempotencyKey: "the same"}
}

// sendAgain sends a request once, lets it wait for a minute in the line, and returns when it does.
func sendAgain(t *testing.T, s *leaseserver.Server, h *httptest.Server, r lease.AcquireRequest) <-chan result {
	t.Helper()
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	before := servetest.Waiters(t, s)
	done := make(chan result, 1)
	go func() {
		l, err := cl.AcquireWait(context.WithoutCancel(t.Context()), r, time.Minute)
		done <- result{l, err}
	}()
	servetest.AwaitWaiters(t, s, before+1)
	return done
}

// sendAndGoSilent sends it by a connection whose client is never heard of again,
// which the server cannot know.
func sendAndGoSilent(t *testing.T, s *leaseserver.Server, h *httptest.Server, r lease.AcquireRequest) {
	t.Helper()
	before := servetest.Waiters(t, s)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", h.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	body := fmt.Sprintf(`{"owner_id":%q,"ttl_ms":%d,"idempotency_key":%q}`, r.Holder, r.TTL.Milliseconds(), r.IdempotencyKey)
	_, err = fmt.Fprintf(conn, "POST /v1/locks/%s/acquire?wait=1m HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.Name, len(body), body)
	require.NoError(t, err)
	servetest.AwaitWaiters(t, s, before+1)
}

// stores are one that hands over and one that cannot.
func stores() map[string]func() lease.Store {
	return map[string]func() lease.Store{
		"a store that hands over": func() lease.Store { return leasetest.NewStore() },
		"one that cannot":         func() lease.Store { return plainStore{leasetest.NewStore()} },
	}
}

func get(t *testing.T, ch <-chan result) lease.Lease {
	t.Helper()
	r := await.Receive(t, 2*servetest.Bound, ch, "it waits for itself")
	require.NoError(t, r.err)
	return r.lease
}

func TestEverySendingOfARequestInTheLineGetsTheSameLease(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		for _, ttl := range []time.Duration{servetest.Long, 15 * time.Second, 50 * time.Millisecond} {
			t.Run(name+", "+ttl.String(), func(t *testing.T) {
				t.Parallel()
				s, h, cl := served(t, leaseserver.Config{Store: store(), PollInterval: 10 * time.Millisecond})
				before := acquire(t, cl, servetest.Ask("job", "x"))
				sendAndGoSilent(t, s, h, keyed(ttl))
				other := sendAgain(t, s, h, servetest.Ask("job", "b"))
				second, third := sendAgain(t, s, h, keyed(ttl)), sendAgain(t, s, h, keyed(ttl))
				require.NoError(t, cl.Release(t.Context(), before.Claim))
				got := get(t, second)
				require.Equal(t, before.Token+1, got.Token, "that of the sending whose client is gone")
				require.Equal(t, got.Claim, get(t, third).Claim)
				if ttl == servetest.Long {
					require.NoError(t, cl.Release(t.Context(), got.Claim))
				}
				require.Equal(t, before.Token+2, get(t, other).Token, "no sending got another lease")
			})
		}
	}
}

// Sendings of one request have one place, that of the first, as long as one of them waits: the client that
// resends after its connection broke does not wait behind those that came meanwhile.
func TestASendingKeepsThePlaceOfAnEarlierOneWhoseClientHungUp(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]int{"the first in the queue": 0, "behind another": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h, cl := served(t, leaseserver.Config{PollInterval: -1})
			held := acquire(t, cl, servetest.Ask("job", "x"))
			var before []<-chan result
			for range ahead {
				before = append(before, sendAgain(t, s, h, servetest.Ask("job", "ahead")))
			}
			ctx, hangUp := context.WithCancel(t.Context())
			hung := make(chan struct{})
			go func() {
				defer close(hung)
				_, _ = post(ctx, h, "/v1/locks/job/acquire?wait=1m", `{"owner_id":"a","ttl_ms":3600000,"idempotency_key":"the same"}`)
			}()
			servetest.AwaitWaiters(t, s, ahead+1)
			other := sendAgain(t, s, h, servetest.Ask("job", "b"))
			second, third := sendAgain(t, s, h, keyed(servetest.Long)), sendAgain(t, s, h, keyed(servetest.Long))
			hangUp()
			<-hung
			servetest.AwaitWaiters(t, s, ahead+3)
			last := held
			for _, waiting := range append(before, second) {
				require.NoError(t, cl.Release(t.Context(), last.Claim))
				last = get(t, waiting)
			}
			require.Equal(t, last.Claim, get(t, third).Claim)
			require.NoError(t, cl.Release(t.Context(), last.Claim))
			get(t, other)
		})
	}
}

func TestALeaseThatWasReleasedMeanwhileIsNotGrantedAgainToALateSending(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 50 {
				s, h, cl := served(t, leaseserver.Config{Store: store(), PollInterval: -1})
				before := acquire(t, cl, servetest.Ask("job", "x"))
				first, second := sendAgain(t, s, h, keyed(servetest.Long)), sendAgain(t, s, h, keyed(servetest.Long))
				require.NoError(t, cl.Release(t.Context(), before.Claim))
				var got lease.Lease
				select {
				case r := <-first:
					require.NoError(t, r.err)
					got = r.lease
					require.NoError(t, cl.Release(t.Context(), got.Claim))
					require.Equal(t, got.Claim, get(t, second).Claim)
				case r := <-second:
					require.NoError(t, r.err)
					got = r.lease
					require.NoError(t, cl.Release(t.Context(), got.Claim))
					require.Equal(t, got.Claim, get(t, first).Claim)
				}
				record := recordOf(t, cl, "job")
				require.Equal(t, lease.Free, record.State, "nobody has a lease that nobody knows of")
				require.Equal(t, got.Token, record.Token)
			}
		})
	}
}

// The lease is released while the other sendings of its request are about to leave, and nobody polls.
func TestTheNextWaiterIsServedWhileOtherSendingsLeave(t *testing.T) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h, cl := served(t, leaseserver.Config{Store: store(), PollInterval: -1})
			for range 50 {
				before := acquire(t, cl, servetest.Ask("job", "x"))
				first := sendAgain(t, s, h, keyed(servetest.Long))
				copies := []<-chan result{sendAgain(t, s, h, keyed(servetest.Long)), sendAgain(t, s, h, keyed(servetest.Long))}
				next := sendAgain(t, s, h, servetest.Ask("job", "b"))
				require.NoError(t, cl.Release(t.Context(), before.Claim))
				got := get(t, first)
				require.NoError(t, cl.Release(t.Context(), got.Claim))
				require.NoError(t, cl.Release(t.Context(), get(t, next).Claim))
				for _, c := range copies {
					require.Equal(t, got.Claim, get(t, c).Claim)
				}
			}
		})
	}
}

func TestALeaseThatWasGrantedBesideTheLineIsToldToTheSendingInIt(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	before, err := store.Acquire(t.Context(), servetest.Ask("job", "x")) // by another server
	require.NoError(t, err)
	waiting := sendAgain(t, s, h, keyed(servetest.Long))
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"acquire"`) == 1 })
	require.NoError(t, store.Release(t.Context(), before.Claim))
	l := acquire(t, cl, keyed(servetest.Long))
	require.Equal(t, l.Claim, get(t, waiting).Claim)
}

func TestASendingThatComesAfterTheGrantGetsItsLeaseThoughOthersWait(t *testing.T) {
	t.Parallel()
	s, h, cl := served(t, leaseserver.Config{PollInterval: -1})
	l := acquire(t, cl, keyed(servetest.Long))
	other := sendAgain(t, s, h, servetest.Ask("job", "b"))
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, s, "lock_op_latency_ms", `"acquire"`) == 2 })
	again, err := cl.AcquireWait(t.Context(), keyed(servetest.Long), time.Minute)
	require.NoError(t, err)
	require.Equal(t, l.Claim, again.Claim)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	require.Equal(t, l.Token+1, get(t, other).Token)
}

// Two servers on one store: the first sending stands in the line of the one, the
// second in that of the other.
func TestASendingToAnotherServerGetsTheSameLease(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	one, h1 := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: 10 * time.Millisecond})
	two, h2 := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: 10 * time.Millisecond})
	cl := servetest.Client(t, h1, leasehttp.ClientConfig{})
	before := acquire(t, cl, servetest.Ask("job", "x"))
	sendAndGoSilent(t, one, h1, keyed(servetest.Long))
	other := sendAgain(t, two, h2, servetest.Ask("job", "b")) // before it
	second := sendAgain(t, two, h2, keyed(servetest.Long))
	third := sendAgain(t, one, h1, keyed(servetest.Long))
	require.NoError(t, cl.Release(t.Context(), before.Claim))
	var first lease.Lease
	select { // either server can be the faster one
	case r := <-other:
		require.NoError(t, r.err)
		require.NoError(t, cl.Release(t.Context(), r.lease.Claim))
		first = get(t, second)
	case r := <-second:
		require.NoError(t, r.err)
		first = r.lease
		defer func() { get(t, other) }()
	}
	require.Equal(t, first.Claim, get(t, third).Claim)
	require.NoError(t, cl.Release(t.Context(), first.Claim))
}

func TestTheTimeOfALeaseThatAnotherSendingGotCountsFromItsAnswer(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	granted, answer := make(chan struct{}), make(chan struct{})
	store := &servetest.Spy{Store: leasetest.NewStore(), After: func() {
		select {
		case granted <- struct{}{}:
			<-answer
		case <-answer:
		}
	}}
	s, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{store}, PollInterval: -1})
	sendAndGoSilent(t, s, h, keyed(ttl))
	<-granted
	from := lease.Now()
	await.Until(t, servetest.Bound, func() bool { return !from.Add(ttl/2).Passed() == false })
	sent := lease.Now()
	second := sendAgain(t, s, h, keyed(ttl))
	close(answer)
	got := get(t, second)
	bound := from.Add(ttl).Remaining() // what is read later is less
	assert.LessOrEqual(t, lease.Trust(sent, got, -1).Remaining(), bound+time.Millisecond)
	assert.Equal(t, uint64(1), got.Token)
}

func TestRequestsWithoutAKeyAreNotTakenForOne(t *testing.T) {
	t.Parallel()
	s, h, cl := served(t, leaseserver.Config{PollInterval: -1})
	before := acquire(t, cl, servetest.Ask("job", "x"))
	type grant struct {
		ID    string `json:"lease_id"`
		Token uint64 `json:"fencing_token"`
	}
	grants := make(chan grant, 2)
	for i := range 2 {
		go func() {
			var g grant
			defer func() { grants <- g }()
			a := send(t, h, "POST", "/v1/locks/job/acquire?wait=1m", `{"owner_id":"a","ttl_ms":3600000}`)
			assert.NoError(t, json.Unmarshal([]byte(a.body), &g), a.body)
		}()
		servetest.AwaitWaiters(t, s, i+1)
	}
	require.NoError(t, cl.Release(t.Context(), before.Claim))
	one := <-grants
	require.NoError(t, cl.Release(t.Context(), lease.Claim{Name: "job", Holder: "a", ID: one.ID, Token: one.Token}))
	two := <-grants
	assert.NotEmpty(t, two.ID)
	assert.NotEqual(t, one.ID, two.ID)
}

// The second server stands for one that was restarted, or became active.
func TestAResentReleaseSucceedsAtAnotherServerThoughTheLockIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store lease.Store
		keeps bool
	}{
		"a store that keeps the key":               {leasetest.NewStore(), true},
		"the control: one that is only a Store":    {struct{ lease.Store }{leasetest.NewStore()}, false},
		"by a hand-over to the first of the queue": {leasetest.NewStore(), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, one := servetest.Serve(t, leaseserver.Config{Store: c.store, PollInterval: -1})
			_, two := servetest.Serve(t, leaseserver.Config{Store: c.store, PollInterval: -1})
			holder := servetest.Client(t, one, leasehttp.ClientConfig{})
			l := acquire(t, holder, servetest.Ask("job", "a"))
			release := func(key string) string {
				text, err := json.Marshal(map[string]any{"owner_id": l.Holder, "lease_id": l.ID, "fencing_token": l.Token, "idempotency_key": key})
				require.NoError(t, err)
				return string(text)
			}
			var next <-chan result
			if name == "by a hand-over to the first of the queue" {
				next = sendAgain(t, first, one, servetest.Ask("job", "b"))
				awaitStanding(t, first, "job")
			}
			require.Equal(t, http.StatusOK, send(t, one, "POST", "/v1/locks/job/release", release("once")).status)
			if next != nil {
				require.NoError(t, (<-next).err)
			} else {
				acquire(t, holder, servetest.Ask("job", "b"))
			}
			for key, keeps := range map[string]bool{"once": c.keeps, "twice": false, "": false} {
				want := http.StatusConflict
				if keeps {
					want = http.StatusOK
				}
				assert.Equal(t, want, send(t, two, "POST", "/v1/locks/job/release", release(key)).status, key)
			}
			record := recordOf(t, holder, "job")
			assert.Equal(t, "b", record.Holder)
			assert.Equal(t, lease.Held, record.State)
		})
	}
}
