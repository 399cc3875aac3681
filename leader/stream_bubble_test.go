package leader_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A reader may not have run since, and then the end and the events are there at one time.
func TestAReaderGetsTheEventsFromBeforeTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	for range 50 { // a select would lose them every other time
		synctest.Test(t, func(t *testing.T) {
			e, err := leader.New(leader.Config{Name: "test", Backend: leadertest.NewElection().Backend()})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var kinds []leader.EventKind
			reading, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for v := range e.Events(ctx) {
					if v.Kind == leader.EventStateChange && v.To == leader.Acquiring {
						<-reading // it is busy with the first
					}
					kinds = append(kinds, v.Kind)
				}
			}()
			synctest.Wait()
			require.NoError(t, e.Start(t.Context()))
			require.NoError(t, e.WaitForLeadership(t.Context()))
			synctest.Wait()
			require.NoError(t, e.Shutdown(t.Context()))
			cancel()
			synctest.Wait()
			close(reading)
			<-done
			assert.Contains(t, kinds, leader.EventAcquired)
			assert.Equal(t, leader.EventStopped, kinds[len(kinds)-1])
		})
	}
}
