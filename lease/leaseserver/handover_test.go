package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
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

// waitInLine lets a client wait for job, and returns when it does.
func waitInLine(t *testing.T, s *leaseserver.Server, h *httptest.Server, holder string, wait time.Duration) <-chan result {
	t.Helper()
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	before := servetest.Waiters(t, s)
	done := make(chan result, 1)
	go func() {
		l, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("job", holder), wait)
		done <- result{l, err}
	}()
	servetest.AwaitWaiters(t, s, before+1)
	return done
}

type result struct {
	lease lease.Lease
	err   error
}

func TestReleasesHandTheLockToTheFirstOfTheLine(t *testing.T) {
	t.Parallel()
	const n = 100
	store := &handing{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	holder, err := cl.Acquire(t.Context(), servetest.Ask("job", "first"))
	require.NoError(t, err)
	first := waitInLine(t, s, h, "0", time.Minute)
	awaitStanding(t, s, "job") // it asked, and was refused
	line := []<-chan result{first}
	for i := 1; i < n; i++ {
		line = append(line, waitInLine(t, s, h, fmt.Sprint(i), time.Minute))
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
	record, err := cl.Get(t.Context(), "job")
	require.NoError(t, err)
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
	held, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = post(ctx, h, "/v1/locks/job/acquire?wait=1m", `{"owner_id":"b","ttl_ms":3600000}`) })
	defer wg.Wait()
	awaitStanding(t, s, "job")
	next := waitInLine(t, s, h, "c", time.Minute)
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	got := <-next
	require.NoError(t, got.err)
	assert.Equal(t, "c", got.lease.Holder)
	assert.Equal(t, held.Token+2, got.lease.Token, "the other one was granted, too")
}

func TestAReleaseThatIsRefusedLeavesTheWaiterWhereItIs(t *testing.T) {
	t.Parallel()
	store := &handing{Store: leasetest.NewStore()}
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	next := waitInLine(t, s, h, "b", time.Minute)
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
	s, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: -1})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	r := servetest.Ask("job", "a")
	r.MinHold = time.Second
	held, err := cl.Acquire(t.Context(), r)
	require.NoError(t, err)
	next := waitInLine(t, s, h, "b", time.Minute)
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
			held, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			require.NoError(t, err)
			first := waitInLine(t, s, h, "b", time.Minute)
			awaitStanding(t, s, "job")
			second := waitInLine(t, s, h, "c", time.Minute)
			store.errs <- fault
			err = cl.Release(t.Context(), held.Claim)
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
