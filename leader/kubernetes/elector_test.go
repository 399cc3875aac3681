package kubernetes_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

func newElector(t *testing.T, server *apitest.Server, identity string, lease time.Duration) *leader.Elector {
	t.Helper()
	e, err := leader.New(leader.Config{Name: name, Backend: newBackend(t, server), Identity: identity, LeaseDuration: lease})
	require.NoError(t, err)
	return e
}

// Five pods are replaced one after the other, as a rollout does: each leads once, and
// none beside another.
func TestPodsLeadOneAfterTheOther(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	var leaders atomic.Int32
	var pods sync.WaitGroup
	var mu sync.Mutex
	var terms []uint64
	for i := range 5 {
		e := newElector(t, server, fmt.Sprintf("pod-%d", i), ttl)
		pods.Go(func() {
			ctx, stop := context.WithCancel(context.Background())
			assert.NoError(t, e.Run(ctx, func(ctx context.Context) error {
				assert.EqualValues(t, 1, leaders.Add(1))
				mu.Lock()
				terms = append(terms, leader.TermOfContext(ctx).N)
				mu.Unlock()
				stop()
				<-ctx.Done()
				assert.EqualValues(t, 0, leaders.Add(-1))
				return nil
			}))
		})
	}
	pods.Wait()
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, terms)
	require.Empty(t, holder(server))
}

// An API that is down for longer than the lease costs leadership, and one that is back
// has a leader again.
func TestALeaderOutlivesNoOutage(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	e := newElector(t, server, "pod", 5*time.Second) // no pause of the machine ends it
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	require.NoError(t, e.WaitForLeadership(within(t)))
	leading, first := e.Context(), e.Term()
	server.Inject(func(string) apitest.Fault { return apitest.Fault{Drop: true} })
	await.Receive(t, patience, leading.Done(), "it leads for ever")
	require.ErrorIs(t, context.Cause(leading), leader.ErrLost)
	server.Inject(nil)
	require.NoError(t, e.WaitForLeadership(within(t)))
	assert.Positive(t, e.Term().Compare(first))
}
