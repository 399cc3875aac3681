package leased_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
)

func TestAHandOverThroughALockServer(t *testing.T) {
	t.Parallel()
	server, _ := serve(t)
	handOver(t, func() leased.Store {
		client, _ := dial(t, server)
		return client
	})
}

func TestAHandOverOnAStoreThatIsPolled(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	handOver(t, func() leased.Store { return store })
}

// handOver lets two electors take turns.
func handOver(t *testing.T, way func() leased.Store) {
	t.Helper()
	refused := make(chan struct{})
	var once sync.Once
	first := newElector(t, way(), "first")
	second := newElectorWith(t, way(), "second", leader.Callbacks{OnAcquireFailed: func(error) { once.Do(func() { close(refused) }) }})
	require.NoError(t, first.Start(t.Context()))
	require.NoError(t, first.WaitForLeadership(t.Context()))
	require.NoError(t, second.Start(t.Context()))
	<-refused
	term := first.Context()
	start := time.Now()
	require.NoError(t, first.Shutdown(context.Background()))
	require.NoError(t, second.WaitForLeadership(t.Context()))
	t.Logf("hand-over in %v", time.Since(start))
	require.Positive(t, second.Term().Compare(leader.TermOfContext(term)))
	require.NoError(t, second.Shutdown(context.Background()))
}
