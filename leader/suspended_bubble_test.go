package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// The machine is suspended during the attempt that won: the keeper begins when the lease
// has ended by one clock. It does not wait for the next renewal to notice.
func TestALeaseThatEndedInASuspensionIsLostAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, suspended := range map[string]time.Duration{"suspended": time.Hour, "control": 0} {
			e, err := New(Config{Name: "scheduler", Backend: &electedOnce{}, LeaseDuration: time.Hour})
			require.NoError(t, err)
			from := boottime.Present()
			from.Boot -= suspended
			v := e.newTerm(&lifecycle{ctx: t.Context()}, from)
			synctest.Wait() // no time passes
			select {
			case err := <-v.loss:
				assert.Equal(t, "suspended", name)
				assert.ErrorIs(t, err, renew.ErrExpired)
				assert.ErrorIs(t, context.Cause(v.ctx.Context), ErrLost)
			default:
				assert.Equal(t, "control", name)
			}
			v.close()
		}
	})
}
