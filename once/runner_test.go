package once_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
)

// A faulty store can be cut off from one node.
type faulty struct {
	once.Store

	cut  atomic.Bool // nothing arrives
	hang atomic.Bool // and nothing is answered
	slow time.Duration
	mute bool // claims are not answered
}

var errCut = errors.New("cut off")

func (f *faulty) fails(ctx context.Context) error {
	if f.hang.Load() {
		<-ctx.Done()
	}
	if f.cut.Load() || ctx.Err() != nil {
		return errCut
	}
	return nil
}

func (f *faulty) Claim(ctx context.Context, r once.Request) (once.Claim, error) {
	c, err := f.Store.Claim(ctx, r)
	bubble.Sleep(f.slow)
	if f.mute {
		<-ctx.Done()
		return c, ctx.Err()
	}
	return c, err
}

func (f *faulty) Renew(ctx context.Context, c once.Claim, ttl time.Duration) (time.Duration, error) {
	if err := f.fails(ctx); err != nil {
		return 0, err
	}
	return f.Store.Renew(ctx, c, ttl)
}

func (f *faulty) End(ctx context.Context, c once.Claim, s once.State) error {
	if err := f.fails(ctx); err != nil {
		return err
	}
	return f.Store.End(ctx, c, s)
}

func inBubble(t *testing.T, test func(t *testing.T, f *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &faulty{Store: leased.New(leasetest.NewStore())})
	})
}

func newRunner(t *testing.T, c once.Config) *once.Runner {
	t.Helper()
	r, err := once.New(c)
	require.NoError(t, err)
	return r
}

func nothing(context.Context) error { return nil }

func TestTheWorksContextEndsBeforeAnotherGetsTheTick(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*faulty){
		"renewals fail": func(f *faulty) { f.cut.Store(true) },
		"renewals hang": func(f *faulty) { f.hang.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *faulty) {
				t.Helper()
				tick := time.Now()
				var ended time.Time
				type outcome struct {
					once.Result
					err error
				}
				first := make(chan outcome)
				began := make(chan struct{})
				go func() {
					result, err := newRunner(t, once.Config{Store: f, Node: "a"}).Do(t.Context(), "report", tick, func(ctx context.Context) error {
						close(began)
						bubble.Sleep(time.Minute) // renewed several times
						assert.NoError(t, ctx.Err())
						fault(f)
						<-ctx.Done()
						ended = time.Now()
						assert.ErrorIs(t, context.Cause(ctx), once.ErrLost)
						return context.Cause(ctx)
					})
					first <- outcome{result, err}
				}()
				<-began
				var got time.Time
				result, err := newRunner(t, once.Config{Store: f.Store, Node: "b", Wait: time.Hour}).Do(t.Context(), "report", tick, func(context.Context) error {
					got = time.Now()
					return nil
				})
				require.NoError(t, err)
				require.True(t, result.Did)
				lost := <-first
				require.ErrorIs(t, lost.err, once.ErrLost)
				assert.True(t, lost.Did)
				assert.GreaterOrEqual(t, got.Sub(ended), once.DefaultTTL/10, "the margin")
			})
		})
	}
}

func TestARenewalThatHangsLeavesTimeForAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		run, err := newRunner(t, once.Config{Store: f}).Claim(t.Context(), "report", time.Now())
		require.NoError(t, err)
		f.hang.Store(true)
		bubble.Sleep(once.DefaultTTL * 2 / 3)
		f.hang.Store(false)
		bubble.Sleep(time.Minute)
		require.NoError(t, run.Context().Err())
		_, err = run.End(nil)
		require.NoError(t, err)
	})
}

func TestAnEndIsTriedUntilTheStoreIsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		time.AfterFunc(once.DefaultTTL/2, func() { f.cut.Store(false) })
		result, err := newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", time.Now(), func(context.Context) error {
			f.cut.Store(true)
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, once.Ran, result.State)
		result, err = newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", result.Tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Ran}, []any{result.Did, result.State})
	})
}

func TestAnEndThatCannotBeNotedIsALoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		cause := errors.New("no paper")
		result, err := newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", time.Now(), func(context.Context) error {
			f.cut.Store(true)
			return cause
		})
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, once.ErrLost)
		require.ErrorIs(t, err, errCut)
		assert.True(t, result.Did)
		f.cut.Store(false)
		bubble.Sleep(once.DefaultTTL)
		missed, err := newRunner(t, once.Config{Store: f}).Missed(t.Context(), "report", result.Tick, func(after time.Time) time.Time {
			if after.Before(result.Tick) {
				return result.Tick
			}
			return time.Time{}
		})
		require.NoError(t, err)
		assert.Len(t, missed, 1, "another may run it")
	})
}

func TestAClaimWhoseAnswerCameTooLateRunsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		f.slow = once.DefaultTTL
		_, err := newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", time.Now(), func(context.Context) error {
			t.Error("it ran")
			return nil
		})
		require.ErrorIs(t, err, once.ErrLost)
		f.slow = 0
		result, err := newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", time.Now().Add(-once.DefaultTTL), nothing)
		require.NoError(t, err)
		assert.True(t, result.Did, "it was given back")
	})
}

func TestAStoreThatDoesNotAnswerIsAskedForATTL(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		f.mute = true
		before := time.Now()
		_, err := newRunner(t, once.Config{Store: f}).Do(t.Context(), "report", before, nothing)
		require.ErrorContains(t, err, "did not answer within the TTL, 15s")
		assert.WithinDuration(t, before.Add(once.DefaultTTL), time.Now(), time.Second)
	})
}

func TestWorkThatPanicsHasFailed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		tick := time.Now()
		r := newRunner(t, once.Config{Store: f, Retry: func(error) bool { return true }})
		assert.PanicsWithValue(t, "stop", func() {
			_, _ = r.Do(t.Context(), "report", tick, func(context.Context) error { panic("stop") })
		})
		result, err := r.Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Failed}, []any{result.Did, result.State})
	})
}

func TestAWaitEndsWithTheRunOrItsTimeOrTheCtx(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		tick := time.Now()
		run, err := newRunner(t, once.Config{Store: f, Node: "a"}).Claim(t.Context(), "report", tick)
		require.NoError(t, err)
		waiting := newRunner(t, once.Config{Store: f, Wait: time.Minute})

		result, err := waiting.Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Running, "a"}, []any{result.Did, result.State, result.Node})
		assert.WithinDuration(t, tick.Add(time.Minute), time.Now(), time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = waiting.Do(ctx, "report", tick, nothing)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		time.AfterFunc(10*time.Second, func() {
			_, err := run.End(nil)
			assert.NoError(t, err)
		})
		before := time.Now()
		result, err = waiting.Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Ran, "a"}, []any{result.Did, result.State, result.Node})
		assert.WithinDuration(t, before.Add(10*time.Second), time.Now(), time.Second)
	})
}

func TestARunEndsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		run, err := newRunner(t, once.Config{Store: f}).Claim(t.Context(), "report", time.Now())
		require.NoError(t, err)
		require.NoError(t, run.Context().Err())
		first, err := run.End(nil)
		require.NoError(t, err)
		assert.Equal(t, once.Ran, first.State)
		require.ErrorIs(t, run.Context().Err(), context.Canceled)
		second, err := run.End(errors.New("no paper"))
		require.NoError(t, err)
		assert.Equal(t, first, second)
	})
}

func TestAConfigThatIsOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	store := leased.New(leasetest.NewStore())
	for field, c := range map[string]once.Config{
		"Config.Store":  {},
		"Config.Window": {Store: store, Window: leased.Keeps + 1},
		"Config.Early":  {Store: store, Early: -1},
		"Config.TTL":    {Store: store, TTL: time.Hour},
		"Config.Wait":   {Store: store, Wait: -1},
		"Config.Node":   {Store: store, Node: "a\nb"},
	} {
		_, err := once.New(c)
		var invalid *once.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		assert.Equal(t, field, invalid.Field)
	}
	_, err := once.New(once.Config{Store: store, Window: -1})
	require.ErrorIs(t, err, once.ErrInvalid)
}

func TestMissedRefusesASchedule(t *testing.T) {
	t.Parallel()
	r := newRunner(t, once.Config{Store: leased.New(leasetest.NewStore())})
	for _, next := range []func(time.Time) time.Time{
		func(t time.Time) time.Time { return t.Add(time.Millisecond) },
		func(t time.Time) time.Time { return t.Truncate(time.Hour) },
	} {
		_, err := r.Missed(t.Context(), "report", time.Time{}, next)
		require.ErrorIs(t, err, once.ErrInvalid)
	}
	missed, err := r.Missed(t.Context(), "report", time.Time{}, func(time.Time) time.Time { return time.Time{} })
	require.NoError(t, err)
	assert.Empty(t, missed)
}

func TestMissedAsksTheScheduleInOneLocation(t *testing.T) {
	t.Parallel()
	r := newRunner(t, once.Config{Store: leased.New(leasetest.NewStore())})
	zone := time.FixedZone("Kolkata", 5*3600+1800)
	for _, since := range []time.Duration{once.DefaultWindow / 2, 2 * once.DefaultWindow} { // within the window, and before
		missed, err := r.Missed(t.Context(), "report", time.Now().Add(-since).In(zone), func(after time.Time) time.Time {
			assert.Equal(t, time.Local, after.Location())
			return time.Time{}
		})
		require.NoError(t, err)
		assert.Empty(t, missed)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

func TestANilFunctionClaimsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *faulty) {
		t.Helper()
		r, err := once.New(once.Config{Store: f})
		require.NoError(t, err)
		tick := time.Now()
		_, err = r.Do(t.Context(), "report", tick, nil)
		require.ErrorIs(t, err, once.ErrInvalid)
		result, err := r.Do(t.Context(), "report", tick, func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.True(t, result.Did)
	})
}

// A hostileStore calls a function before each renewal.
type hostileStore struct {
	once.Store
	call func()
}

func (s hostileStore) Renew(ctx context.Context, c once.Claim, ttl time.Duration) (time.Duration, error) {
	s.call()
	return s.Store.Renew(ctx, c, ttl)
}

func TestARetryOrAStoreThatDoesNotReturnLeavesNoRun(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(){"panics": func() { panic("hostile") }, "ends its goroutine": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *faulty) { // which waits for the renewals
				t.Helper()
				r, err := once.New(once.Config{Store: f, Retry: func(error) bool { end(); return true }})
				require.NoError(t, err)
				result, err := r.Do(t.Context(), "report", time.Now(), func(context.Context) error { return errCut })
				require.ErrorIs(t, err, errCut)
				require.ErrorContains(t, err, "Config.Retry")
				assert.Equal(t, once.Failed, result.State)

				r, err = once.New(once.Config{Store: hostileStore{f, end}})
				require.NoError(t, err)
				_, err = r.Do(t.Context(), "bill", time.Now(), func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
				require.ErrorIs(t, err, once.ErrLost)
			})
		})
	}
}
