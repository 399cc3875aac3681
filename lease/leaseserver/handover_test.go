package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
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

// A handing store hands over, and counts.
type handing struct {
	*leasetest.Store
	acquires, handOvers atomic.Int64
	after               func() // a hand-over; nil = nothing
	errs                chan error
}

func (s *handing) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.acquires.Add(1)
	return s.Store.Acquire(ctx, r)
}

func (s *handing) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	s.handOvers.Add(1)
	select {
	case err := <-s.errs:
		return lease.Lease{}, err, err
	default:
	}
	l, released, acquired = s.Store.HandOver(ctx, r, next)
	if s.after != nil {
		s.after()
	}
	return l, released, acquired
}

type result struct {
	lease lease.Lease
	err   error
}

func TestReleasesHandTheLockToTheFirstOfTheLine(t *testing.T) {
	t.Parallel()
	const n = 100
	store := &handing{Store: leasetest.NewStore()}
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	holder := acquire(t, cl, servetest.Ask("job", "first"))
	first := sendAgain(t, s, h, servetest.Ask("job", "0"))
	awaitStanding(t, s, "job") // it asked, and was refused
	line := []<-chan result{first}
	for i := 1; i < n; i++ {
		line = append(line, sendAgain(t, s, h, servetest.Ask("job", fmt.Sprint(i))))
	}
	for i, next := range line {
		require.NoError(t, cl.Release(t.Context(), holder.Claim))
		got := <-next
		require.NoError(t, got.err)
		require.Equal(t, fmt.Sprint(i), got.lease.Holder)
		require.Greater(t, got.lease.Token, holder.Token)
		require.Equal(t, servetest.Long, got.lease.Remaining.Round(time.Minute))
		holder = got.lease
	}
	require.NoError(t, cl.Release(t.Context(), holder.Claim))
	assert.Equal(t, int64(2), store.acquires.Load())
	assert.Equal(t, int64(n), store.handOvers.Load())
	assert.InDelta(t, n, servetest.Metric(t, s, "lock_op_latency_ms", `"hand_over"`), 0)
	assert.InDelta(t, n+1, servetest.Metric(t, s, "lock_acquire_total", `"success"`), 0)
	record := recordOf(t, cl, "job")
	assert.Equal(t, lease.Free, record.State)
}

func TestWhatIsHandedToAWaiterThatHungUpIsGivenBack(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	store := &handing{Store: leasetest.NewStore()}
	hangsUp := make(chan context.Context, 1)
	store.after = sync.OnceFunc(func() {
		hangUp()
		<-(<-hangsUp).Done() // the server has heard of it
	})
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1, Authorize: func(r *http.Request) error {
		if r.URL.RawQuery == "wait=1m" {
			hangsUp <- r.Context()
		}
		return nil
	}})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	held := acquire(t, cl, servetest.Ask("job", "a"))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = post(ctx, h, "/v1/locks/job/acquire?wait=1m", `{"owner_id":"b","ttl_ms":3600000}`) })
	defer wg.Wait()
	awaitStanding(t, s, "job")
	next := sendAgain(t, s, h, servetest.Ask("job", "c"))
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	got := <-next
	require.NoError(t, got.err)
	assert.Equal(t, "c", got.lease.Holder)
	assert.Equal(t, held.Token+2, got.lease.Token, "the other one was granted, too")
}

func TestAReleaseThatIsRefusedLeavesTheWaiterWhereItIs(t *testing.T) {
	t.Parallel()
	store := &handing{Store: leasetest.NewStore()}
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	held := acquire(t, cl, servetest.Ask("job", "a"))
	next := sendAgain(t, s, h, servetest.Ask("job", "b"))
	stale := held.Claim
	stale.ID = "x"
	for range 3 {
		require.ErrorIs(t, cl.Release(t.Context(), stale), lease.ErrStale)
	}
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	got := <-next
	require.NoError(t, got.err)
	assert.Equal(t, held.Token+1, got.lease.Token)
}

func TestMinHoldKeepsTheLockFromTheOneItIsHandedTo(t *testing.T) {
	t.Parallel()
	store := &handing{Store: leasetest.NewStore()}
	s, h, cl := served(t, leaseserver.Config{Store: store, PollInterval: -1})
	r := servetest.Ask("job", "a")
	r.MinHold = time.Second
	held := acquire(t, cl, r)
	next := sendAgain(t, s, h, servetest.Ask("job", "b"))
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	got := <-next
	require.NoError(t, got.err)
	assert.GreaterOrEqual(t, got.lease.AcquiredAt.Sub(held.AcquiredAt), r.MinHold)
}

func TestAHandOverThatFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{
		"busy: nothing was done, and the waiter stays": &lease.BusyError{Retry: time.Millisecond, Cause: errors.New("busy")},
		"else: both hear that the outcome is unknown":  errors.New("disk on fire"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &handing{Store: leasetest.NewStore(), errs: make(chan error, 1)}
			s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
			cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
			held := acquire(t, cl, servetest.Ask("job", "a"))
			first := sendAgain(t, s, h, servetest.Ask("job", "b"))
			awaitStanding(t, s, "job")
			second := sendAgain(t, s, h, servetest.Ask("job", "c"))
			store.errs <- fault
			err := cl.Release(t.Context(), held.Claim)
			require.Equal(t, errors.Is(fault, lease.ErrBusy), errors.Is(err, lease.ErrBusy))
			require.Error(t, err)
			require.NoError(t, cl.Release(t.Context(), held.Claim))
			got := <-first
			if errors.Is(fault, lease.ErrBusy) {
				require.NoError(t, got.err)
				require.NoError(t, cl.Release(t.Context(), got.lease.Claim))
			} else {
				require.ErrorContains(t, got.err, "unknown")
			}
			got = <-second
			require.NoError(t, got.err)
			assert.Equal(t, "c", got.lease.Holder)
		})
	}
}

// A bus is a store in memory that carries messages, except to a listener that is deaf.
type bus struct {
	*leasetest.Store

	mu   sync.Mutex
	deaf bool
	ears map[chan string]struct{}
}

func (b *bus) Send(_ context.Context, messages []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ear := range b.ears {
		for _, m := range messages {
			ear <- m
		}
	}
	return nil
}

func (b *bus) Listen(ctx context.Context, ready func(), receive func(string)) error {
	ear := make(chan string, 10_000)
	b.mu.Lock()
	if b.deaf {
		b.mu.Unlock()
		return errors.New("a pooler shares the session")
	}
	b.ears[ear] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, ear)
	}()
	ready()
	for {
		select {
		case m := <-ear:
			receive(m)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// The clients of one server keep a lock in its queue for ever. A waiter at another server of the store has its
// turn all the same.
func TestAQueueThatNeverEndsStarvesNoWaiterAtAnotherServer(t *testing.T) {
	t.Parallel()
	const poll = 200 * time.Millisecond
	store := func(deaf bool) *bus {
		return &bus{Store: leasetest.NewStore(), deaf: deaf, ears: make(map[chan string]struct{})}
	}
	for name, peers := range map[string]func(t *testing.T) (busy, other servetest.Peer){
		"without an election": func(t *testing.T) (busy, other servetest.Peer) {
			t.Helper()
			s := store(false)
			return servetest.NewSingle(t, s, poll), servetest.NewSingle(t, s, poll)
		},
		"and without messages": func(t *testing.T) (busy, other servetest.Peer) {
			t.Helper()
			s := store(true)
			return servetest.NewSingle(t, s, poll), servetest.NewSingle(t, s, poll)
		},
		"the other one cannot reach the active one": func(t *testing.T) (busy, other servetest.Peer) {
			t.Helper()
			s := store(false)
			active := servetest.NewPeer(t, s, poll)
			active.Election.Believe(active.HTTP.URL)
			servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
			return active, servetest.NewPeer(t, s, poll)
		},
		"the active one waits": func(t *testing.T) (busy, other servetest.Peer) {
			t.Helper()
			s := store(false)
			active := servetest.NewPeer(t, s, poll)
			active.Election.Believe(active.HTTP.URL)
			servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
			return servetest.NewPeer(t, s, poll), active
		},
		"nobody is active": func(t *testing.T) (busy, other servetest.Peer) {
			t.Helper()
			s := store(false)
			return servetest.NewPeer(t, s, poll), servetest.NewPeer(t, s, poll)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			busy, other := peers(t)
			limit := 9 * poll // a message is faster than that a queue ends by itself
			if name == "and without messages" {
				limit = 30 * poll
			}
			assert.Less(t, servetest.Turns(t, busy, other, servetest.Bound), limit)
		})
	}
}

// It never looks by itself, so that the end of the deafness alone makes it look.
func TestAServerThatHearsAgainLooksForWhatItMissed(t *testing.T) {
	t.Parallel()
	b := &bus{Store: leasetest.NewStore(), deaf: true, ears: make(map[chan string]struct{})}
	p := servetest.NewSingle(t, b, -1)
	held := acquire(t, b, servetest.Ask("job", "holder"))
	got := make(chan error)
	go func() {
		_, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), servetest.Bound)
		got <- err
	}()
	servetest.AwaitWaiters(t, p.Server, 1)
	await.Until(t, servetest.Bound, func() bool { return servetest.Metric(t, p.Server, "lock_op_latency_ms", `"acquire"`) > 0 }, "the waiter has the store's answer")
	require.NoError(t, b.Release(t.Context(), held.Claim))
	b.mu.Lock()
	b.deaf = false
	b.mu.Unlock()
	require.NoError(t, <-got)
}
