package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/gather"
)

func TestTheNumberOfRequestsThatWaitIsBounded(t *testing.T) {
	t.Parallel()
	flies, goOn := make(chan struct{}, 1), make(chan struct{})
	var s Store
	flights := 0
	s.requests = gather.Group[*request]{Flights: 1, Most: maxBatch, Fly: func(take func() []*request) {
		require.LessOrEqual(t, len(take()), maxBatch)
		if flights++; flights == 1 {
			flies <- struct{}{}
			<-goOn
		}
	}}
	require.NoError(t, s.add(&request{}))
	<-flies
	for range maxWaiting {
		require.NoError(t, s.add(&request{}))
	}
	require.ErrorIs(t, s.add(&request{}), lease.ErrBusy)
	close(goOn)
	s.requests.Close()
	require.Zero(t, s.requests.Length())
	require.Equal(t, 1+maxWaiting/maxBatch, flights)
	require.Equal(t, ErrClosed, s.add(&request{}))
}
