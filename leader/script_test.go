package leader_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
)

// A call is one call of a Backend that a script expects, and the answer. A call
// that takes longer than its ctx fails with that, unless it pays no heed to it.
type call struct {
	method string
	takes  time.Duration
	deaf   bool // to the end of ctx
	ok     bool
	err    error
	term   leader.Term // of a TryAcquire that succeeds
	dirty  bool        // CleanStart is false after it
}

var errBroken = errors.New("broken pipe")

func acquires(n uint64) call {
	return call{method: "TryAcquire", ok: true, term: leader.Term{Era: 1, N: n}}
}
func refuses() call      { return call{method: "TryAcquire"} }
func fails() call        { return call{method: "TryAcquire", err: errBroken} }
func pends() call        { return call{method: "TryAcquire", err: driver.ErrPending} }
func renews() call       { return call{method: "Renew"} }
func failsToRenew() call { return call{method: "Renew", err: errBroken} }
func losesLeadership() call {
	return call{method: "Renew", err: fmt.Errorf("%w: terminated", leader.ErrLost)}
}
func releases() call          { return call{method: "Release"} }
func failsToRelease() call    { return call{method: "Release", err: errBroken} }
func closes() call            { return call{method: "Close"} }
func waits() call             { return call{method: "Wait"} }
func failsToWait() call       { return call{method: "Wait", err: errBroken} }
func hangs(c call) call       { c.takes = time.Hour; return c }
func uncleanly(c call) call   { c.dirty = true; return c }
func (c call) String() string { return c.method }
func slowly(c call, takes time.Duration) call {
	c.takes = takes
	return c
}
func whatever(c call) call { c.deaf = true; return c }

// scripted is a Backend that follows a script, and checks that the Elector calls
// one method at a time.
type scripted struct {
	t *testing.T

	mu    sync.Mutex
	calls []call // to come
	busy  string // the method under way
	last  call   // the last successful TryAcquire
	gone  chan struct{}
}

func (s *scripted) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	assert.NotEmpty(s.t, identity)
	assert.Positive(s.t, ttl)
	return s.play(ctx, "TryAcquire")
}

func (s *scripted) Renew(ctx context.Context, _ string, _ time.Duration) error {
	_, err := s.play(ctx, "Renew")
	return err
}

func (s *scripted) Release(ctx context.Context, _ string) error {
	_, err := s.play(ctx, "Release")
	return err
}

func (s *scripted) play(ctx context.Context, method string) (bool, error) {
	c := s.next(method)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = ""
	}()
	switch {
	case c.deaf:
		bubble.Sleep(c.takes)
	case c.takes > 0:
		timer := time.NewTimer(c.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	if c.ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last, s.gone = c, make(chan struct{})
	}
	return c.ok, c.err
}

func (s *scripted) next(method string) call {
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(s.t, s.busy, "%s is called beside it", method)
	s.busy = method
	if len(s.calls) == 0 || s.calls[0].method != method {
		assert.Failf(s.t, "the script is not followed", "at %v: %s is called, to come: %v", time.Now(), method, s.calls)
		return call{method: method, err: errors.New("not in the script")}
	}
	c := s.calls[0]
	s.calls = s.calls[1:]
	return c
}

// lose announces the loss of leadership.
func (s *scripted) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gone)
}

// able adds what most backends can to a script.
type able struct{ *scripted }

func (a able) Close() error {
	_, err := a.play(context.Background(), "Close")
	return err
}

func (a able) Term() leader.Term {
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Empty(a.t, a.busy, "Term is called beside it")
	return a.last.term
}

func (a able) CleanStart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Empty(a.t, a.busy, "CleanStart is called beside it")
	return !a.last.dirty
}

func (a able) Lost() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Empty(a.t, a.busy, "Lost is called beside it")
	return a.gone
}

// waiting adds Wait.
type waiting struct{ able }

func (w waiting) Wait(ctx context.Context) error {
	_, err := w.play(ctx, "Wait")
	return err
}

// A scene is an Elector on a scripted Backend, and what it reports.
type scene struct {
	*leader.Elector
	t      *testing.T
	script *scripted

	mu       sync.Mutex
	reported []string
	began    time.Time
}

// open starts an Elector, in a bubble. Its retries come each 2 s, to the
// nanosecond, its renewals each 5 s; it trusts one for 12 s.
func open(t *testing.T, config leader.Config, calls ...call) *scene {
	t.Helper()
	s := prepare(t, config, calls...)
	require.NoError(t, s.Start(t.Context()))
	return s
}

// launch is open that does not wait for the first attempt.
func launch(t *testing.T, config leader.Config, calls ...call) *scene {
	t.Helper()
	s := prepare(t, config, calls...)
	go func() { _ = s.Start(t.Context()) }()
	synctest.Wait()
	return s
}

// prepare is open without Start.
func prepare(t *testing.T, config leader.Config, calls ...call) *scene {
	t.Helper()
	s := &scene{t: t, script: &scripted{t: t, calls: calls}, began: time.Now()}
	config.Name = "scheduler"
	if config.Backend == nil {
		config.Backend = able{s.script}
	}
	if config.Retry == nil {
		config.Retry = backoff.Fixed{Jitter: -1}
	}
	config.Callbacks = s.callbacks(config.Callbacks)
	e, err := leader.New(config)
	require.NoError(t, err)
	s.Elector = e
	return s
}

// callbacks note what they are reported, where the config has none of its own.
func (s *scene) callbacks(own leader.Callbacks) leader.Callbacks {
	c := leader.Callbacks{
		OnAcquired:  func(t leader.Term) { s.note("acquired %v", t) },
		OnRecovered: func(t leader.Term) { s.note("recovered %v", t) },
		OnReleased:  func(t leader.Term) { s.note("released %v", t) },
		OnLost: func(t leader.Term, err error) {
			assert.ErrorIs(s.t, err, leader.ErrLost)
			s.note("lost %v", t)
		},
		OnAcquireFailed: func(err error) {
			if err != nil {
				s.note("attempt failed")
			} else {
				s.note("refused")
			}
		},
		OnStateChange: func(from, to leader.State) { s.note("%v→%v", from, to) },
		OnError:       func(error) { s.note("error") },
		OnStopped: func(err error) {
			if err != nil {
				assert.ErrorIs(s.t, err, leader.ErrGaveUp)
				s.note("gave up")
			} else {
				s.note("stopped")
			}
		},
	}
	ours, theirs := reflect.ValueOf(&c).Elem(), reflect.ValueOf(own)
	for i := range ours.NumField() {
		if !theirs.Field(i).IsNil() {
			ours.Field(i).Set(theirs.Field(i))
		}
	}
	return c
}

func (s *scene) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = append(s.reported, fmt.Sprintf(format, args...))
}

// heard returns what was reported since the last call, once nothing moves any more.
func (s *scene) heard() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	reported := s.reported
	s.reported = nil
	return reported
}

// at waits until a moment after open.
func (s *scene) at(d time.Duration) {
	bubble.Sleep(time.Until(s.began.Add(d)))
	synctest.Wait()
}

// finish stops the Elector, unless that happened, and checks that the script was
// played to its end.
func (s *scene) finish() {
	s.t.Helper()
	require.NoError(s.t, s.Shutdown(context.Background()))
	assert.Equal(s.t, leader.Stopped, s.State())
	assert.False(s.t, s.IsLeader())
	assert.Empty(s.t, s.script.calls, "calls that were never made")
}

func TestMain(m *testing.M) { leak.Main(m) }
