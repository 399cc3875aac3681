package background_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/background"
)

func TestStopEndsTheContextAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		stop := background.Run(t.Context(), func(ctx context.Context) {
			<-ctx.Done()
			ended = true
		})
		synctest.Wait()
		assert.False(t, ended)
		stop()
		assert.True(t, ended)
		stop()
	})
}

func TestAReaderReceivesTheEventsFromBeforeItsStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, subscribed := make(chan int, 3), false
		var received []int
		stop := background.Read(func(ctx context.Context) iter.Seq[int] {
			subscribed = true
			return func(yield func(int) bool) {
				<-ctx.Done()
				for range len(sent) {
					yield(<-sent)
				}
			}
		}, func(e int) { received = append(received, e) })
		assert.True(t, subscribed, "before Read returned")
		sent <- 1
		sent <- 2
		synctest.Wait()
		stop()
		assert.Equal(t, []int{1, 2}, received)
	})
}

func TestSharedWorkEndsWithTheLastOfItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		shared, cancel := background.WhileAny(t.Context(), []context.Context{first, second})
		defer cancel()
		leave()
		synctest.Wait()
		assert.NoError(t, shared.Err())
		leaveToo()
		synctest.Wait()
		assert.ErrorIs(t, shared.Err(), context.Canceled)
	})
}

func TestSharedWorkEndsWhenItIsDone(t *testing.T) {
	t.Parallel()
	shared, cancel := background.WhileAny(t.Context(), []context.Context{t.Context()})
	cancel()
	assert.ErrorIs(t, shared.Err(), context.Canceled)
}
