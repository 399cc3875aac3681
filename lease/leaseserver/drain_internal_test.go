package leaseserver

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A slowStore releases when it may.
type slowStore struct {
	*port
	asked, may chan struct{}
}

func (s slowStore) Release(ctx context.Context, c lease.Claim) error {
	close(s.asked)
	<-s.may
	return s.port.Release(ctx, c)
}

func TestWhatIsReleasedWhileAServerEndsGoesToTheWaitersOfOthers(t *testing.T) {
	t.Parallel()
	const bound = 20 * time.Second
	store := slowStore{&port{Store: leasetest.NewStore(), bus: &bus{ears: make(map[chan string]struct{})}}, make(chan struct{}), make(chan struct{})}
	s, err := New(Config{Store: store, Registry: prometheus.NewRegistry()})
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	served, released := make(chan error), make(chan error)
	go func() { served <- s.Serve(ctx, listener) }()
	cl, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + listener.Addr().String()}, Resends: -1})
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	l, err := cl.Acquire(t.Context(), ask("a"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it listens
		store.bus.mu.Lock()
		defer store.bus.mu.Unlock()
		return len(store.bus.ears) > 0
	}, bound, time.Millisecond)
	store.bus.carry([]string{"alive other", "wait other 1 job"}) // once: an alive without a digest ends the waits before it
	require.Eventually(t, func() bool { return s.queue.peers.isElsewhere("job") }, bound, time.Millisecond)
	go func() { released <- cl.Release(t.Context(), l.Claim) }()
	<-store.asked
	end()
	require.Eventually(t, s.draining.Load, bound, time.Millisecond)
	close(store.may)
	require.NoError(t, <-released)
	require.NoError(t, <-served)
	free := slices.Index(store.sent, "free other 1 job")
	gone := slices.IndexFunc(store.sent, func(m string) bool { return strings.HasPrefix(m, "gone ") })
	assert.GreaterOrEqual(t, free, 0, "%v", store.sent)
	assert.Greater(t, gone, free, "%v", store.sent)
}
