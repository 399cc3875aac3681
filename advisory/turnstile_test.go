package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestErrorsNameTheHolderOfTheKeyAndNotWhoWaitsFirst(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for _, c := range []struct {
			name   string
			shared bool
		}{{"among writers", false}, {"a reader behind a writer", true}} {
			t.Run(c.name, func(t *testing.T) {
				dsn := pgtest.DSN(t)
				key, work := agents.ID(42), dbtest.Pool(t, dsn)
				named := func(name string, shared bool) *advisory.Locker {
					return open(t, advisory.Config{DSN: dsn, ApplicationName: name}).With(advisory.Options{Shared: shared})
				}
				lock, err := named("holder", c.shared).Acquire(t.Context(), key)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				first := named("first", false).With(advisory.Options{Wait: advisory.NoTimeout})
				go func() {
					defer close(ended)
					_, _ = first.Acquire(ctx, key)
				}()
				eventually(t, func() bool { return locks(t, work, true) == 2 }) // the second is the turnstile

				late := named("late", c.shared)
				var held *advisory.HeldError
				eventually(t, func() bool { // a busy machine does not always say who
					_, err = late.TryAcquire(t.Context(), key)
					return errors.As(err, &held) && held.Holder != nil
				})
				require.Equal(t, "holder", held.Holder.ApplicationName)
				require.Equal(t, lock.PID(), held.Holder.PID)

				var timeout *advisory.TimeoutError
				eventually(t, func() bool {
					_, err = late.With(advisory.Options{Shared: c.shared, Wait: time.Second}).Acquire(t.Context(), key)
					return errors.As(err, &timeout) && timeout.Holder != nil
				})
				require.Equal(t, "holder", timeout.Holder.ApplicationName)
				require.Equal(t, lock.PID(), timeout.Holder.PID)
				cancel()
				<-ended
			})
		}
	})
}
