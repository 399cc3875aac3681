package leaseserver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasetest"
)

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
	held, err := b.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
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
