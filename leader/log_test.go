package leader_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
)

// keyed is a backend with a key.
type keyed struct{ able }

func (keyed) LogAttrs() []slog.Attr { return []slog.Attr{slog.Int("key1", 1), slog.Int("key2", 100)} }

// textLog is a logger, and what it has written, without times.
func textLog() (*slog.Logger, *bytes.Buffer) {
	var log bytes.Buffer
	return slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &log
}

// logging is a Config with a backend that has a key, and what is logged.
func logging(t *testing.T, callbacks leader.Callbacks, calls ...call) (*leader.Elector, *scripted, *bytes.Buffer) {
	t.Helper()
	script := &scripted{t: t, calls: calls}
	logger, log := textLog()
	e, err := leader.New(leader.Config{
		Name: "scheduler", Backend: keyed{able{script}}, Retry: backoff.Fixed{Jitter: -1}, Callbacks: callbacks, Logger: logger,
	})
	require.NoError(t, err)
	return e, script, log
}

// about are the lines that contain text.
func about(log *bytes.Buffer, text string) (lines []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func failsBy(format string, args ...any) call {
	return call{method: "TryAcquire", err: fmt.Errorf(format, args...)}
}

func TestEachNewReasonWhyAttemptsFailIsLoggedOnceAndThatItIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []call
		for port := range 3 { // one reason: only the port of this end differs
			calls = append(calls, failsBy("leader: read 127.0.0.1:%d: connection reset", 40000+port), releases(), closes())
		}
		calls = append(calls, failsBy("no route to host"), releases(), closes(), refuses(), refuses())
		for range 7 { // so that it has followed for a lease
			calls = append(calls, refuses())
		}
		calls = append(calls, refusesForEver(), releases(), closes(), acquires(1), releases(), closes())
		e, _, log := logging(t, leader.Callbacks{}, calls...)
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		require.NoError(t, e.Shutdown(t.Context()))
		const of = "election=scheduler key1=1 key2=100"
		assert.Equal(t, []string{
			`level=WARN msg="attempt failed" ` + of + ` error="read 127.0.0.1:40000: connection reset"`,
			`level=WARN msg="attempt failed" ` + of + ` error="no route to host"`,
			`level=INFO msg="attempts succeed again" ` + of,
			`level=WARN msg="attempt failed" ` + of + ` error="password authentication failed" permanent=true`,
			`level=INFO msg="attempts succeed again" ` + of,
		}, about(log, `msg="attempt`))
	})
}

func TestEachLineOfAnElectionHasItsNameAndKeyAndEachTransitionIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _, log := logging(t, leader.Callbacks{OnError: func(error) { panic("now and then") }}, acquires(1), failsToRenew(), losesLeadership(), closes(), refuses(), failsBy("leader: gone"), releases(), closes(), releases(), closes())
		require.NoError(t, e.Start(t.Context()))
		bubble.Sleep(9 * time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		lines := strings.Count(log.String(), "\n")
		assert.Len(t, about(log, " election=scheduler key1=1 key2=100 "), lines, log.String())
		for _, transition := range []string{"stopped state.to=follower", "acquiring state.to=leader", "leader state.to=follower", "follower state.to=stopped"} {
			assert.Len(t, about(log, "state.from="+transition), 1, log.String())
		}
	})
}

func TestAReleaseThatFailsIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _, log := logging(t, leader.Callbacks{}, acquires(1), failsToRelease(), closes(), closes())
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Contains(t, log.String(), `level=WARN msg="release failed: leadership ends by its lease" election=scheduler key1=1 key2=100 error="broken pipe"`)
	})
}

func TestTheErrorOfAnAttemptBeginsWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reported error
		e, _, _ := logging(t, leader.Callbacks{OnError: func(err error) { reported = err }},
			failsBy("leader: %w", errors.New("connection refused")), releases(), closes(), releases(), closes())
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		require.EqualError(t, reported, "connection refused")
		require.ErrorIs(t, reported, leader.ErrConnection)
		require.NoError(t, e.Shutdown(t.Context()))
	})
}

// audited is a script whose store can be unfit.
type audited struct {
	able
	unfit atomic.Pointer[error]
}

func (a *audited) Audit() error {
	if err := a.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

func TestAStoreThatIsNotFitIsReportedAndLeadershipGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("leader: the table is gone")
		backend := &audited{}
		var reported atomic.Int32
		s := prepare(t, leader.Config{Backend: backend, MaxRenewFailures: 1, Callbacks: leader.Callbacks{OnError: func(err error) {
			assert.Equal(t, gone, err)
			reported.Add(1)
		}}},
			acquires(1), renews(), renews(), renews(), renews(), renews(), releases(), closes())
		backend.able = able{s.script}
		assert.NoError(t, s.Start(t.Context()))
		s.at(6 * time.Second)
		assert.Zero(t, reported.Load())
		backend.unfit.Store(&gone)
		s.at(11 * time.Second)
		assert.EqualValues(t, 1, reported.Load())
		s.at(16 * time.Second)
		assert.EqualValues(t, 2, reported.Load(), "each renewal reports it")
		backend.unfit.Store(nil)
		s.at(26 * time.Second)
		assert.EqualValues(t, 2, reported.Load())
		assert.True(t, s.IsLeader(), "no renewal has failed")
		s.finish()
	})
}

func TestAStoreThatStaysUnfitIsLoggedOnceAMinuteAndThatItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the table is gone")
		calls := []call{acquires(1)}
		for range 30 {
			calls = append(calls, renews())
		}
		backend := &audited{}
		logger, log := textLog()
		s := prepare(t, leader.Config{Backend: backend, Logger: logger}, append(calls, releases(), closes())...)
		backend.able = able{s.script}
		backend.unfit.Store(&gone)
		assert.NoError(t, s.Start(t.Context()))
		s.at(131 * time.Second)
		backend.unfit.Store(nil)
		s.at(151 * time.Second)
		s.finish()
		const wrong = `level=WARN msg="something is wrong with the election, which continues" election=scheduler error="the table is gone"`
		assert.Equal(t, []string{
			wrong, wrong + " for=1m0s", wrong + " for=2m0s", `level=INFO msg="nothing is wrong with the election any more" election=scheduler`,
		}, about(log, "wrong with the election"))
	})
}

func TestALongFailureIsLoggedOnceAMinuteAndThatItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []call
		for range 100 {
			calls = append(calls, fails(), releases(), closes())
		}
		e, _, log := logging(t, leader.Callbacks{}, append(calls, acquires(1), releases(), closes())...)
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		require.NoError(t, e.Shutdown(t.Context()))
		const of = "election=scheduler key1=1 key2=100"
		failed := `level=WARN msg="attempt failed" ` + of + ` error="broken pipe"`
		assert.Equal(t, []string{
			failed, failed + " for=1m0s", failed + " for=2m0s", failed + " for=3m0s", `level=INFO msg="attempts succeed again" ` + of,
		}, about(log, `msg="attempt`))
	})
}
