//go:build integration

package integration

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

// looks are the ways to ask whether a lock is held; each is prepared before the pause.
var looks = map[string]func(lock *advisory.Lock) (held func() bool){
	"Err": func(l *advisory.Lock) func() bool { ctx := l.Context(); return func() bool { return ctx.Err() == nil } },
	"Done": func(l *advisory.Lock) func() bool {
		ctx := l.Context()
		return func() bool { return isOpen(ctx.Done()) }
	},
	"Lost": func(l *advisory.Lock) func() bool { return func() bool { return isOpen(l.Lost()) } },
	"Value": func(l *advisory.Lock) func() bool {
		ctx := context.WithValue(l.Context(), lookKey{}, 1)
		return func() bool { return ctx.Err() == nil }
	},
	"derived": func(l *advisory.Lock) func() bool {
		ctx, cancel := context.WithTimeout(l.Context(), time.Hour)
		context.AfterFunc(ctx, cancel)
		return func() bool { return ctx.Err() == nil }
	},
}

type lookKey struct{}

func isOpen(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return false
	default:
		return true
	}
}

// lookAfterAPause looks all the time, so that it is the first to run after a pause. It
// says what its first look after one found, and how long it took to find the loss.
func lookAfterAPause(look func(*advisory.Lock) func() bool) func(context.Context, string) error {
	return func(ctx context.Context, dsn string) error {
		l, err := childLocker(ctx, dsn, childTTL)
		if err != nil {
			return err
		}
		lock, err := l.Acquire(ctx, agents.ID(1))
		if err != nil {
			return err
		}
		held := look(lock)
		last := time.Now() // before anybody can stop it
		fmt.Println("held")
		for {
			woken := time.Now()
			if woken.Sub(last) < childTTL {
				last = woken
				runtime.Gosched()
				continue
			}
			first := held()
			for held() {
				runtime.Gosched()
			}
			fmt.Println("pause", first, time.Since(woken).Microseconds())
			return nil
		}
	}
}

func TestTheFirstLookAfterAStopFindsTheLossAndADerivedContextIsToldSoon(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		for name := range looks {
			t.Run(name, func(t *testing.T) {
				dsn := pgtest.DSN(t)
				holder := start(t, "look "+name, dsn)
				holder.Says("held")
				holder.Signal(syscall.SIGSTOP)
				l := open(t, dsn, session.DefaultTTL)
				lock := acquire(t, l, agents.ID(1)) // the server ended the session of the one who is stopped
				began := time.Now()
				await.Until(t, patience, func() bool { return time.Since(began) > childTTL })
				holder.Signal(syscall.SIGCONT)
				var first bool
				var microseconds int64
				_, err := fmt.Sscanf(holder.Says("pause"), "pause %t %d", &first, &microseconds)
				require.NoError(t, err)
				t.Logf("the first look said %t; the loss was found after %v", first, time.Duration(microseconds)*time.Microsecond)
				if name != "derived" {
					assert.False(t, first, "the first look said that the lock is held")
				}
				require.NoError(t, lock.Release())
			})
		}
	})
}
