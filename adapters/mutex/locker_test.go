package mutex_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// lockers are Lockers of two processes.
func lockers(p processes) (a, b *mutex.Locker) {
	wait := advisory.Options{Wait: advisory.NoTimeout}
	return mutex.NewLocker(p.here.With(wait), agents), mutex.NewLocker(p.there.With(wait), agents)
}

func TestALockIsWaitedForUntilItComesOrTheContextEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		a, b := lockers(p)
		_, release, err := a.Lock(t.Context(), "repo/7")
		require.NoError(t, err)

		soon, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		got, nothing, err := b.Lock(soon, "repo/7")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, soon, got)
		assert.Equal(t, time.Hour, time.Since(began))
		nothing()

		time.AfterFunc(time.Hour, release)
		_, release, err = b.Lock(t.Context(), "repo/7")
		require.NoError(t, err)
		release()
	})
}

func TestATryOfWhatIsLockedIsFalseAndNoError(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		a, b := lockers(p)
		ok, _, release, err := a.TryLock(t.Context(), "repo/7")
		require.NoError(t, err)
		assert.True(t, ok)
		ok, _, nothing, err := b.TryLock(t.Context(), "repo/7")
		require.NoError(t, err)
		assert.False(t, ok)
		nothing()
		ran, err := b.TryLockAndDo(t.Context(), "repo/7", func(context.Context) error { return assert.AnError })
		require.NoError(t, err)
		assert.False(t, ran)
		release()
		ran, err = b.TryLockAndDo(t.Context(), "repo/7", func(context.Context) error { return assert.AnError })
		require.ErrorIs(t, err, assert.AnError)
		assert.True(t, ran)
	})
}

func TestAReleaseThatComesAgainLeavesTheNextLockAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		a, b := lockers(p)
		_, first, err := a.Lock(t.Context(), "repo/7")
		require.NoError(t, err)
		first()
		_, second, err := a.Lock(t.Context(), "repo/7")
		require.NoError(t, err)
		defer second()
		first()
		ok, _, _, err := b.TryLock(t.Context(), "repo/7")
		require.NoError(t, err)
		assert.False(t, ok)
	})
}

func TestTheContextOfALockEndsWithIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		a, _ := lockers(p)
		work, release, err := a.Lock(t.Context(), "repo/7")
		require.NoError(t, err)
		defer release()
		p.server.KillSessions()
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), mutex.ErrExpired)

		err = a.LockAndDo(t.Context(), "repo/8", func(ctx context.Context) error {
			p.server.KillSessions()
			<-ctx.Done()
			return nil // as work that does not look
		})
		require.ErrorIs(t, err, mutex.ErrExpired)
	})
}

func TestANameThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(p processes) {
		t := p.T
		a, _ := lockers(p)
		_, release, err := a.Lock(t.Context(), "")
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		release()
		_, _, release, err = a.TryLock(t.Context(), "")
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		release()
		require.ErrorIs(t, a.LockAndDo(t.Context(), "", nil), namespace.ErrInvalidKey)
		_, err = a.TryLockAndDo(t.Context(), "", nil)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
	})
}
