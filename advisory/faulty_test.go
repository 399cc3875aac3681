package advisory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
)

// A faulty source fails as the test says. Its sessions become doubtful or lost
// before anybody is told, as they do in time when the server is silent or the
// process was stopped.
type faulty struct {
	session.Source
	state     atomic.Uint32 // session.State of those that seem held
	onAcquire func() error  // nil = nothing
	// unverified: something has come from the server, and nobody knows what.
	unverified atomic.Bool
	questions  atomic.Int32              // whether a session lives
	onQuestion func()                    // before each; nil = nothing
	onSession  func()                    // after each; nil = nothing
	onTry      func(namespace.Tag) error // nil = nothing
	// onUnlocked comes between what the server did for an unlock and its answer; nil = nothing.
	onUnlocked  func()
	onWon       func()       // after each wait that succeeded; nil = nothing
	slowHolders atomic.Int64 // delay of the answer to a query for a lock's holder, in ns
}

type faultySession struct {
	session.Session
	source  *faulty
	pending chan error // of a batch whose answer takes longer than its patience
	held    map[namespace.Tag]bool
}

var errReentered = errors.New("BUG: a session was asked for a lock that it has")

// enter notes what the operations were granted or gave back, and finds a lock that was
// granted twice, which a server does.
func (s *faultySession) enter(ops []*session.Op) error {
	for _, op := range ops {
		tag := op.Tag
		switch {
		case op.Unlock:
			delete(s.held, tag)
			continue
		case !op.Held, op.Pass, op.Holder != nil:
			continue
		case op.Any != nil:
			tag = op.Any[op.Index]
		}
		if s.held[tag] {
			return errReentered
		}
		s.held[tag] = true
	}
	return nil
}

func (f *faulty) set(state session.State) { f.state.Store(uint32(state)) }

// forget makes the sessions unverified, and waits until the last look at them counts no longer.
func (f *faulty) forget() {
	f.unverified.Store(true)
	bubble.Sleep(session.VerifiedFor + 1)
}

func (f *faulty) Acquire(ctx context.Context) (session.Session, error) {
	if f.onAcquire != nil {
		if err := f.onAcquire(); err != nil {
			return nil, err
		}
	}
	s, err := f.Source.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if f.onSession != nil {
		f.onSession()
	}
	return &faultySession{Session: s, source: f, pending: make(chan error, 1), held: make(map[namespace.Tag]bool)}, nil
}

func (s *faultySession) Look(now time.Time, closely bool) session.Status {
	status := s.Session.Look(now, closely)
	status.State = max(status.State, session.State(s.source.state.Load()))
	if status.State != session.Held || s.source.unverified.Load() {
		status.Verified = time.Time{}
	}
	return status
}

func (f *faulty) asked() {
	f.questions.Add(1)
	if f.onQuestion != nil {
		f.onQuestion()
	}
}

func (s *faultySession) Do(ops []*session.Op, patience time.Duration) error {
	switch {
	case len(ops) == 0:
		return <-s.pending
	case ops[0].Holder != nil && s.source.slowHolders.Load() > 0:
		go func() {
			bubble.Sleep(time.Duration(s.source.slowHolders.Load()))
			s.pending <- s.Session.Do(ops, patience)
		}()
		return s.answer(patience)
	case ops[0].Wait != 0, ops[0].Holder != nil:
		err := s.Session.Do(ops, patience)
		if ops[0].Wait != 0 && ops[0].Held && s.source.onWon != nil {
			s.source.onWon()
		}
		return errors.Join(err, s.enter(ops))
	}
	go func() { s.pending <- s.batch(ops, patience) }()
	return s.answer(patience)
}

// answer waits for that to what is pending.
func (s *faultySession) answer(patience time.Duration) error {
	select {
	case err := <-s.pending:
		return err
	case <-time.After(patience):
		return session.ErrPending
	}
}

func (s *faultySession) batch(ops []*session.Op, patience time.Duration) error {
	for _, op := range ops {
		if op.Ping || op.Pass {
			s.source.asked()
		}
		if op.Ping {
			continue
		}
		if s.source.onTry != nil && !op.Unlock {
			tag := op.Tag
			if op.Any != nil {
				tag = op.Any[0]
			}
			if err := s.source.onTry(tag); err != nil {
				return err
			}
		}
	}
	err := s.Session.Do(ops, patience)
	for _, op := range ops {
		if op.Unlock && s.source.onUnlocked != nil {
			s.source.onUnlocked()
		}
	}
	if err != nil {
		return err
	}
	return s.enter(ops)
}

// openFaulty is open with a faulty source.
func (w *world) openFaulty(config advisory.Config) (*advisory.Locker, *faulty) {
	w.Helper()
	f := &faulty{Source: w.server.Source("faulty")}
	l, err := advisory.Open(session.WithSource(w.Context(), f), w.config(config))
	require.NoError(w, err)
	w.Cleanup(func() {
		w.assertIdle(l)
		l.Close()
	})
	return l, f
}

// It is handed over only while it is held for sure, which is the control.
func TestALockOfWhichSomethingUnknownWasHeardIsReleasedNotHandedOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state      session.State
		unverified bool
		handOvers  int64
	}{{session.Held, false, 1}, {session.Doubtful, false, 0}, {session.Held, true, 0}} {
		inBubble(t, func(w *world) {
			a, f := w.openFaulty(advisory.Config{})
			first := w.acquire(a, 1)
			p := w.beginAcquire(w.Context(), a, 1)
			f.set(tt.state)
			f.unverified.Store(tt.unverified)
			assert.Equal(w, tt.state == session.Doubtful, held(a)[0].Doubtful)
			w.release(first)
			lock := w.now(p)
			assert.Equal(w, tt.handOvers, a.Stats().HandOvers)
			w.release(lock)
		})
	}
}

func TestAReaderAsksTheServerIfSomethingUnknownWasHeard(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{})
		readers := []*advisory.Lock{w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 1)}
		assert.Len(w, w.server.Holders(entity(1)), 1)
		w.release(readers[0])
		assert.Zero(w, f.questions.Load())
		f.forget()
		w.release(readers[1])
		assert.EqualValues(w, 1, f.questions.Load())
		require.NoError(w, readers[2].Context().Err())
		w.release(readers[2])
		assert.EqualValues(w, 1, f.questions.Load(), "its unlock is the question")
	})
}

func TestAReaderDoesNotJoinADoubtfulLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		first := w.acquire(l.With(shared), 1)
		f.set(session.Doubtful)
		second := w.acquire(l.With(shared), 1)
		assert.EqualValues(w, 1, f.questions.Load(), "the server is asked first")
		w.release(first, second)
	})
}

type ctxKey struct{}

func TestANestedRequestEndsAlthoughTheOuterLockExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*advisory.Locker, context.Context) (*advisory.Lock, error){
		"Acquire": func(l *advisory.Locker, ctx context.Context) (*advisory.Lock, error) {
			return l.Acquire(ctx, entity(2))
		},
		"AcquireAll": func(l *advisory.Locker, ctx context.Context) (*advisory.Lock, error) {
			return l.AcquireAll(ctx, entity(2), entity(3))
		},
		"AcquireSlot": func(l *advisory.Locker, ctx context.Context) (*advisory.Lock, error) {
			return l.AcquireSlot(ctx, entity(2), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, arm := range []func(f *faulty, expire func()){
				func(f *faulty, expire func()) {
					f.onAcquire = func() error { expire(); return session.ErrUnavailable }
				},
				func(f *faulty, expire func()) {
					f.onTry = func(tag namespace.Tag) error {
						if tag != entity(2).Tag() || name != "AcquireAll" { // at the last key
							expire()
						}
						return nil
					}
				},
			} {
				inBubble(t, func(w *world) {
					a, f := w.openFaulty(advisory.Config{})
					outer := w.acquire(a, 1)
					defer w.fill(a)()
					arm(f, func() { f.set(session.Lost) })
					if inner, err := call(a, outer.Context()); err != nil {
						require.ErrorIs(w, err, advisory.ErrLost) // the cause of its context
					} else {
						w.release(inner)
					}
					require.ErrorIs(w, context.Cause(expired(outer)), advisory.ErrLost)
				})
			}
		})
	}
}

// expired returns the lock's context after a look at it.
func expired(lock *advisory.Lock) context.Context {
	_ = lock.Context().Err()
	return lock.Context()
}

func TestALookForASlotEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error {
			<-answer
			return nil
		}
		start := time.Now()
		_, err := l.With(advisory.Options{Wait: time.Second}).AcquireSlot(w.Context(), entity(1), 1)
		require.ErrorIs(w, err, advisory.ErrUnavailable)
		assert.Equal(w, time.Second, time.Since(start))
		close(answer)
	})
}

// paused returns a Locker whose sessions will be lost without a word, and what says
// that the machine stood still.
func paused(w *world) (l *advisory.Locker, f *faulty, stood func(time.Duration)) {
	w.Helper()
	l, f = w.openFaulty(advisory.Config{})
	var extra atomic.Int64
	start := time.Now()
	l.SetClock(func() time.Duration { return time.Since(start) + time.Duration(extra.Load()) })
	return l, f, func(d time.Duration) { extra.Add(int64(d)) }
}

func TestADerivedContextIsToldSoonAfterTheProcessWasStopped(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		lock := w.acquire(a, 1)
		derived, cancel := context.WithTimeout(lock.Context(), time.Hour)
		defer cancel()
		f.set(session.Lost)
		bubble.Sleep(time.Minute)
		require.NoError(w, derived.Err(), "without a pause nobody tells it here: that is the session's part")

		stood(time.Minute)
		bubble.Sleep(advisory.PauseEvery)
		synctest.Wait()
		require.ErrorIs(w, context.Cause(derived), advisory.ErrLost)
		assert.Empty(w, w.server.Holders(entity(1)), "and its session is ended")
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

// The waiter's key is asked for on a new connection, in the middle of the look at all connections.
func TestWhoWaitsForALockThatAPauseEndsGetsItNext(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		lock, other := w.acquire(a, 1), w.acquire(a, 2)
		p := w.beginAcquire(w.Context(), a, 1)
		synctest.Wait()
		f.onSession = func() { f.set(session.Held) }
		f.set(session.Lost)
		stood(time.Minute)
		bubble.Sleep(advisory.PauseEvery)
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		w.release(w.now(p))
		_ = other.Release() // it is lost if it was looked at before the new connection was there
	})
}

func TestDoneAndLostLookBeforeAnybodyTellsThem(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*advisory.Lock) <-chan struct{}{
		"Done": func(l *advisory.Lock) <-chan struct{} { return l.Context().Done() },
		"Lost": (*advisory.Lock).Lost,
		"Done of a value": func(l *advisory.Lock) <-chan struct{} {
			return context.WithValue(l.Context(), ctxKey{}, 1).Done()
		},
		"Err of a value": func(l *advisory.Lock) <-chan struct{} {
			ctx := context.WithValue(l.Context(), ctxKey{}, 1)
			if ctx.Err() == nil {
				return nil
			}
			return ctx.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, f := w.openFaulty(advisory.Config{})
				lock := w.acquire(a, 1)
				select {
				case <-look(lock):
					require.Fail(w, "it is held")
				default:
				}
				f.set(session.Lost)
				select {
				case <-look(lock):
				default:
					assert.Fail(w, "the first look said that all is well")
				}
				require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
				synctest.Wait()
				assert.Empty(w, w.server.Holders(entity(1)), "and its session is ended")
				require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			})
		})
	}
}

// A lock that is taken later, after a while in which nothing was held, is watched too.
func TestPausesAreWatchedForAgainWhenALockIsHeldAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		w.release(w.acquire(a, 1))
		bubble.Sleep(time.Minute)
		stood(time.Minute)
		lock := w.acquire(a, 1)
		derived, cancel := context.WithCancel(lock.Context())
		defer cancel()
		bubble.Sleep(time.Second)
		require.NoError(w, derived.Err())
		f.set(session.Lost)
		stood(time.Minute)
		bubble.Sleep(advisory.PauseEvery)
		synctest.Wait()
		require.Error(w, derived.Err())
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
	})
}

// The session ends while the server is being asked.
func TestAReaderLearnsTheLossFromItsQuestion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{})
		first, second := w.acquire(a.With(shared), 1), w.acquire(a.With(shared), 1)
		f.forget()
		f.onQuestion = w.server.KillSessions
		require.ErrorIs(w, first.Release(), advisory.ErrLost)
		require.ErrorIs(w, first.Release(), advisory.ErrReleased)
		require.ErrorIs(w, context.Cause(expired(second)), advisory.ErrLost)
		require.ErrorIs(w, second.Release(), advisory.ErrLost)
	})
}

func TestAPauseEndsOnlyWhatExpiredInIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f, stood := paused(w)
		one, two := w.acquire(a, 1), w.acquire(a.With(shared), 2)
		stood(time.Minute)
		bubble.Sleep(advisory.PauseEvery)
		require.NoError(w, one.Context().Err())
		f.set(session.Lost)
		w.Cleanup(func() { f.set(session.Held) })
		stood(time.Minute)
		bubble.Sleep(advisory.PauseEvery)
		synctest.Wait()
		for _, lock := range []*advisory.Lock{one, two} {
			require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

func TestADeadlineEndsATryOfASilentServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error { <-answer; return nil }
		start := time.Now()
		_, err := l.With(advisory.Options{Wait: time.Second}).TryAcquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrUnavailable)
		assert.LessOrEqual(w, time.Since(start), 1200*time.Millisecond)
		close(answer)
	})
}
