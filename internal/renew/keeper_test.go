package renew_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/test/bubble"
)

// A bubble does not simulate CLOCK_BOOTTIME: in minutes, a pause of the machine makes no difference.
const ttl = 15 * time.Minute

var (
	errAway  = errors.New("the store is away")
	errTaken = errors.New("another has it")
	steady   = renew.Rules{Interval: ttl / 3, Timeout: ttl / 3, Pause: ttl / 15, Longest: ttl / 15}
)

// A lease is kept by a Keeper whose renewals answer as the test says.
type lease struct {
	*renew.Keeper[error]

	until  boottime.Deadline
	began  time.Time
	asked  []time.Duration // when, since the beginning
	answer func(ctx context.Context) error
}

const trust = ttl * 8 / 10

func newLease(rules renew.Rules, answer func(ctx context.Context) error) *lease {
	l := &lease{began: time.Now(), answer: answer}
	l.until.Set(boottime.Present().Add(trust))
	l.Keeper = &renew.Keeper[error]{
		Rules: rules,
		Left:  l.until.Left,
		Renew: func(ctx context.Context) error {
			l.asked = append(l.asked, time.Since(l.began))
			return l.answer(ctx)
		},
		Judge: func(err error, sent boottime.Moment) (renew.Event, error) {
			switch {
			case err == nil && l.until.Extend(sent.Add(trust)):
				return renew.Kept, nil
			case err == nil:
				return renew.Gone, nil
			case errors.Is(err, errTaken):
				return renew.Gone, err
			}
			return renew.Failed, err
		},
	}
	return l
}

func (l *lease) run(ctx context.Context) (after time.Duration, cause error) {
	cause = l.Run(ctx, boottime.Present())
	return time.Since(l.began), cause
}

func minutes(all ...float64) (durations []time.Duration) {
	for _, m := range all {
		durations = append(durations, time.Duration(m*float64(time.Minute)))
	}
	return durations
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func TestARightIsRenewedEachIntervalFromTheStartOfTheLastRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Minute)
		defer cancel()
		l := newLease(steady, func(context.Context) error { bubble.Sleep(2 * time.Minute); return nil })
		after, cause := l.run(ctx)
		require.NoError(t, cause)
		assert.Equal(t, 21*time.Minute, after, "it ends with its context, during a renewal")
		_, ok := l.Cancel()
		assert.True(t, ok)
		assert.Equal(t, minutes(5, 10, 15, 20), l.asked)
	})
}

// docs/adr/0013-the-local-deadline-comes-first.md has these numbers.
func TestFailuresAreTriedAgainUntilTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		fails := func(context.Context) error { return errAway }
		l := newLease(steady, fails)
		after, cause := l.run(t.Context())
		require.ErrorIs(t, cause, renew.ErrExpired)
		require.ErrorIs(t, cause, errAway)
		assert.Equal(t, trust, after)
		assert.Equal(t, minutes(5, 6, 7, 8, 9, 10, 11), l.asked)

		three := steady
		three.Failures = 3
		l = newLease(three, fails)
		after, cause = l.run(t.Context())
		require.EqualError(t, cause, "3 renewals failed in a row: the store is away")
		assert.Equal(t, 7*time.Minute, after)
		assert.Equal(t, 3, l.Failures())
	})
}

func TestALossIsReportedAtTheDeadlineWhileARenewalHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		release := make(chan struct{})
		l := newLease(steady, func(context.Context) error { <-release; return nil }) // whatever its ctx says
		after, cause := l.run(t.Context())
		require.Equal(t, renew.ErrExpired, cause)
		assert.Equal(t, trust, after)
		close(release)
		answer, ok := l.Cancel()
		assert.True(t, ok)
		require.NoError(t, answer)
		_, ok = l.Cancel()
		assert.False(t, ok)
	})
}

func TestARenewalThatHeedsItsContextLeavesTimeForAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		silent := true
		l := newLease(steady, func(ctx context.Context) error {
			if silent {
				<-ctx.Done()
				silent = false
			}
			return context.Cause(ctx)
		})
		_, cause := l.run(ctx)
		require.NoError(t, cause)
		assert.Equal(t, minutes(5, 11), l.asked[:2])
	})
}

func TestALossEndsTheRenewalsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		l := newLease(steady, func(context.Context) error { return errTaken })
		after, cause := l.run(t.Context())
		require.Equal(t, errTaken, cause)
		assert.Equal(t, 5*time.Minute, after)

		gone := make(chan struct{})
		l = newLease(steady, nil)
		l.Gone = gone
		time.AfterFunc(time.Minute, func() { close(gone) })
		after, cause = l.run(t.Context())
		require.Equal(t, renew.ErrEnded, cause)
		assert.Equal(t, time.Minute, after)
	})
}

func TestAnAnswerAfterTheDeadlineRevivesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		var l *lease
		l = newLease(steady, func(context.Context) error {
			l.until.Set(boottime.Moment{}) // the process was stopped, and no timer has run
			return nil
		})
		after, cause := l.run(t.Context())
		require.Equal(t, renew.ErrExpired, cause)
		assert.Equal(t, 5*time.Minute, after)
		assert.True(t, l.until.Passed())
	})
}

func TestAnAnswerAfterTheDeadlineKeepsTheReasonOfEarlierFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		var l *lease
		l = newLease(steady, func(context.Context) error {
			if len(l.asked) == 1 {
				return errAway
			}
			l.until.Set(boottime.Moment{})
			return nil
		})
		_, cause := l.run(t.Context())
		require.ErrorIs(t, cause, renew.ErrExpired)
		require.ErrorIs(t, cause, errAway)
	})
}

func TestARightThatHasEndedIsReportedAtTheBeginning(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		l := newLease(steady, nil)
		l.until.Set(boottime.Moment{})
		after, cause := l.run(t.Context())
		require.Equal(t, renew.ErrExpired, cause)
		assert.Zero(t, after)
	})
}

func TestAnAnswerThatComesUnaskedIsAsGood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		l := newLease(steady, func(context.Context) error { return nil })
		waits := 0
		l.Others = func(wait time.Duration) (time.Duration, <-chan error) {
			answers := make(chan error, 1)
			if waits++; waits == 1 {
				time.AfterFunc(3*time.Minute, func() { answers <- errAway })
			}
			if waits == 2 {
				time.AfterFunc(time.Minute/2, func() { answers <- nil })
			}
			return wait - time.Minute/4, answers
		}
		_, cause := l.run(ctx)
		require.NoError(t, cause)
		assert.Equal(t, minutes(8.25, 13, 17.75), l.asked)
	})
}

// between asserts that a pause is at most longest, and at least half of it.
func between(t *testing.T, longest, pause time.Duration) {
	t.Helper()
	assert.GreaterOrEqual(t, pause, longest/2)
	assert.LessOrEqual(t, pause, longest)
}

func TestPausesGrowUntilARightHasLasted(t *testing.T) {
	t.Parallel()
	times := renew.Times{Duration: 10 * time.Second}
	const early, steady = 39 * time.Second, 40 * time.Second
	c := times.Comeback()
	for range 2 {
		assert.Zero(t, c.Lost(early), "most ends have another cause")
		for _, seconds := range []int{2, 4, 8, 16, 32, 64, 80, 80} {
			between(t, time.Duration(seconds)*time.Second, c.Lost(early))
		}
		assert.Equal(t, 9, c.Early())
		between(t, 40*time.Second, c.Failed())
		between(t, 80*time.Second, c.Lost(0))
		assert.False(t, c.Lasted(early))
		assert.Equal(t, 11, c.Early(), "an end in order that came early proves nothing")
		assert.Zero(t, c.Lost(steady))
		assert.Zero(t, c.Early(), "the count begins again")
		c.Failed()
		assert.True(t, c.Lasted(steady))
		assert.Zero(t, c.Early(), "also after an end in order")
	}
}

func TestNoTimesMeanNoPauses(t *testing.T) {
	t.Parallel()
	var c renew.Comeback
	for range 100 {
		assert.Zero(t, c.Failed())
		assert.Zero(t, c.Lost(-time.Second))
	}
}

func TestASlowErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	err := &renew.SlowError{Took: 1234567 * time.Microsecond, Duration: time.Second}
	assert.EqualError(t, err, "the store took 1.235s to answer, and LeaseDuration is 1s: raise LeaseDuration, or give the store less to do")
}
