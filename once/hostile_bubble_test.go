package once_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/once"
)

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
