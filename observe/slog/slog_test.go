package slog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/namespace"
	lockslog "github.com/pglatch/pglatch/observe/slog"
)

// logging returns a logger without times, and its lines.
func logging() (log *slog.Logger, lines func() []string) {
	var text bytes.Buffer
	handler := slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "clock" {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(handler), func() []string { return strings.Split(strings.TrimSpace(text.String()), "\n") }
}

func TestOnlyWhatTookLongAndWhatWasLostIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := logging()
		server := advisorytest.NewServer()
		l, err := server.Open(advisory.Config{Tracer: lockslog.Tracer(log, lockslog.Config{})})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		orders := namespace.Must(2, "order")
		acquire := func(l *advisory.Locker) *advisory.Lock {
			lock, err := l.Acquire(t.Context(), orders.ID(1))
			require.NoError(t, err)
			return lock
		}
		quick := acquire(l)
		bubble.Sleep(time.Second / 2)
		require.NoError(t, quick.Release())
		long := acquire(l)
		granted := make(chan *advisory.Lock)
		go func() { granted <- acquire(l.With(advisory.Options{Label: "invoice run", Wait: advisory.NoTimeout})) }()
		_, err = l.With(advisory.Options{Wait: 2 * time.Second}).Acquire(t.Context(), orders.ID(1))
		require.ErrorIs(t, err, advisory.ErrTimeout)
		bubble.Sleep(time.Minute - 2*time.Second)
		require.NoError(t, long.Release())
		lost := <-granted
		bubble.Sleep(time.Second)
		server.Kill(lost.PID())
		<-lost.Lost()
		require.ErrorIs(t, lost.Release(), advisory.ErrLost)
		synctest.Wait()
		got := lines()
		require.Len(t, got, 4)
		assert.Contains(t, got[0], `level=INFO msg="lock not acquired" key=order/1 waited=2s error="advisory: timed out after 2s`)
		assert.ElementsMatch(t, []string{
			`level=INFO msg="lock held for long" key=order/1 held=1m0s`,
			`level=INFO msg="lock acquired after a wait" key=order/1 label="invoice run" waited=1m0s`,
		}, got[1:3])
		assert.Contains(t, got[3], `level=WARN msg="lock lost" key=order/1 label="invoice run" held=1s reason=`)
	})
}

func TestEachLeadershipIsLoggedWithItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := logging()
		election := leadertest.NewElection()
		e, err := leader.New(leader.Config{Name: "scheduler", Identity: "a", Backend: election.Backend(), Retry: backoff.Fixed{Jitter: -1}})
		require.NoError(t, err)
		stop := lockslog.Watch(log, e)
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		bubble.Sleep(time.Second)
		election.Kill()
		bubble.Sleep(time.Minute)
		require.NoError(t, e.Shutdown(t.Context()))
		stop()
		const of = ` election=scheduler identity=a term=`
		got := lines()
		require.Len(t, got, 4)
		assert.Equal(t, `level=INFO msg="leadership acquired"`+of+`1.1 fencing_token=281474976710657`, got[0])
		assert.Contains(t, got[1], `level=WARN msg="leadership taken away"`+of+`1.1 fencing_token=281474976710657 led=1s error=`)
		assert.Equal(t, `level=INFO msg="leadership acquired"`+of+`1.2 fencing_token=281474976710658`, got[2])
		assert.Contains(t, got[3], `level=INFO msg="leadership released"`+of+`1.2 fencing_token=281474976710658 led=`)
	})
}

func TestWorkIsLoggedWhenItReturnsOrPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := logging()
		e, err := leader.New(leader.Config{Name: "scheduler", Identity: "a", Backend: leadertest.NewElection().Backend()})
		require.NoError(t, err)
		failed := errors.New("no paper")
		require.ErrorIs(t, e.Run(t.Context(), lockslog.Work(log, e, func(context.Context) error {
			bubble.Sleep(time.Second)
			return failed
		})), failed)
		assert.Panics(t, func() {
			_ = e.Run(t.Context(), lockslog.Work(log, e, func(context.Context) error { panic("no ink") }))
		})
		got := lines()
		require.Len(t, got, 4)
		const of = ` election=scheduler identity=a term=1.1 fencing_token=281474976710657 began=2000-01-01T00:00:00Z`
		assert.Equal(t, `level=INFO msg=work_began`+of, got[0])
		assert.Equal(t, `level=INFO msg=work_ended`+of+` ended=2000-01-01T00:00:01Z lasted=1s error="no paper"`, got[1])
		assert.Contains(t, got[3], `msg=work_ended`)
	})
}
