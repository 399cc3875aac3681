package leadertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func try(t *testing.T, b driver.Backend, identity string) bool {
	t.Helper()
	ok, err := b.TryAcquire(t.Context(), identity, time.Hour)
	require.NoError(t, err)
	return ok
}

func TestALeaseEndsToTheNanosecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		time.Sleep(30 * time.Minute)
		require.NoError(t, a.Renew(t.Context(), "a", time.Hour))
		time.Sleep(time.Hour - 1)
		assert.False(t, try(t, b, "b"))
		time.Sleep(time.Nanosecond)
		assert.True(t, try(t, b, "b"))
	})
}

func TestACutNodeHearsNothingAndItsLeaseGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		lost := a.Lost()
		a.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Renew(ctx, "a", time.Hour), context.DeadlineExceeded)
		require.NoError(t, a.Close())
		assert.False(t, try(t, b, "b"), "the other end knows nothing of the Close")
		time.Sleep(time.Hour)
		assert.True(t, try(t, b, "b"))
		select {
		case <-lost:
			assert.Fail(t, "it heard of the loss")
		default:
		}
		answer := make(chan bool)
		go func() { answer <- try(t, a, "a") }()
		synctest.Wait()
		a.Heal()
		assert.False(t, <-answer, "a call that hung goes on")
	})
}

func TestAHealedNodeEndsWhatItLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := election.Backend()
		require.True(t, try(t, a, "a"))
		term := a.Term()
		a.Cut()
		require.NoError(t, a.Close())
		a.Heal()
		require.True(t, try(t, a, "a"))
		assert.True(t, a.Term().Follows(term))
		assert.False(t, a.CleanStart())
	})
}

func TestANodeThatIsHealedLearnsOfItsLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := election.Backend()
		require.True(t, try(t, a, "a"))
		a.Cut()
		election.Steal("thief", time.Hour)
		a.Heal()
		<-a.Lost()
		require.ErrorIs(t, a.Renew(t.Context(), "a", time.Hour), leader.ErrLost)
		holder, ok := election.Leader()
		assert.True(t, ok)
		assert.Equal(t, "thief", holder.Identity)
	})
}

func TestUnavailableMeansThatCallsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		election.SetUnavailable(down)
		require.ErrorIs(t, a.Renew(t.Context(), "a", time.Hour), down)
		require.ErrorIs(t, a.Release(t.Context(), "a"), down)
		require.ErrorIs(t, b.Wait(t.Context()), down)
		_, err := b.TryAcquire(t.Context(), "b", time.Hour)
		require.ErrorIs(t, err, down)
		_, _, err = b.Leader(t.Context())
		require.ErrorIs(t, err, down)
		a.SetUnavailable(nil)
		require.NoError(t, a.Renew(t.Context(), "a", time.Hour))
		_, ok := election.Leader()
		assert.True(t, ok, "the lease went on")
		election.Kill()
		_, ok = election.Leader()
		assert.False(t, ok)
	})
}
