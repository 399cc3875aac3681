//go:build integration

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

// While an AcquireAll or AcquireSlot waits for a key of its own process, its
// session carries what it has already and is silent.
func TestALongWaitInsideTheProcessDoesNotEndTheWaitersSession(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		const ttl = 5 * time.Second
		for name, wait := range map[string]func(*testing.T, *advisory.Locker) (*advisory.Lock, error){
			"all": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireAll(t.Context(), agents.ID(1), agents.ID(2))
			},
			"all, first": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireAll(t.Context(), agents.ID(2), agents.ID(9))
			},
			"slot": func(t *testing.T, l *advisory.Locker) (*advisory.Lock, error) {
				t.Helper()
				return l.AcquireSlot(t.Context(), agents.ID(3), 1)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := open(t, pgtest.DSN(t), ttl)
				locks := []*advisory.Lock{acquire(t, l, agents.ID(2))}
				slot, err := l.AcquireSlot(t.Context(), agents.ID(3), 1)
				require.NoError(t, err)
				locks = append(locks, slot)
				got := make(chan error, 2)
				start := time.Now()
				for range 2 {
					go func() {
						lock, err := wait(t, l)
						if err == nil {
							err = lock.Release()
						}
						got <- err
					}()
				}
				await.Until(t, patience, func() bool { return time.Since(start) > 2*ttl })
				for _, lock := range locks {
					assert.NoError(t, lock.Release())
				}
				require.NoError(t, <-got)
				require.NoError(t, <-got)
			})
		}
	})
}
