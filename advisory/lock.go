package advisory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Lock is one acquisition, from its grant to its release or loss. It is safe
// for concurrent use.
type Lock struct {
	core   *core
	keys   []namespace.Key
	label  string
	parent context.Context // the context of the acquisition

	slotOf namespace.Tag // the semaphore, if the lock is a slot of one
	mode   session.Mode

	// guarded by core.mu
	complete bool
	released bool
	cause    error                 // why it was lost; nil = it was not
	on       []*key                // that it uses
	own      *conn                 // on which its further keys are asked, while it is not complete
	pending  *request              // for its next key
	inside   map[*request]struct{} // that wait while the lock stays held for them; see request.outer
	conns    []*conn               // of all that it used; fixed once the acquisition is complete
	room     [1]*key               // for the usual one of each
	connRoom [1]*conn
	key      [1]namespace.Key

	since time.Time // of the grant; set under core.mu when complete

	ended  bool // by Release; the fields from here are guarded by mu
	mu     sync.Mutex
	ctx    context.Context // made when asked for
	cancel context.CancelCauseFunc
	lost   chan struct{} // made when asked for
	loss   *LostError
}

// Key returns the lock's key, the first one if it has several.
func (l *Lock) Key() namespace.Key { return l.keys[0] }

// Keys returns the lock's keys, in the order in which they were taken.
func (l *Lock) Keys() []namespace.Key { return slices.Clone(l.keys) }

// Shared reports whether the lock is held in shared mode.
func (l *Lock) Shared() bool { return l.mode == session.Shared }

// PID returns the number of the PostgreSQL session that the lock was granted to:
// its pid in pg_stat_activity and pg_locks.
func (l *Lock) PID() uint32 { return l.conns[0].pid }

// Context returns a context for work under the lock: that of the acquisition,
// which also ends when the lock is lost, with a *LostError as its cause, or
// released, with ErrReleased. Passed to an acquisition, it shows that this lock
// is held, so that re-entrance and deadlocks are found.
//
// Its Err and Done look at the clock: work that wakes up after the process was stopped
// finds the lock lost at its first look, before any goroutine could have told it. So
// does Err of a context that context.WithValue made of it. One that
// context.WithCancel, WithTimeout or an errgroup made looks at itself only, and must be
// told, which takes a moment: before a write that must not be late, look at this one.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	ctx := l.ctx
	l.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	inner, cancel := context.WithCancelCause(l.parent) // not under mu: the parent may look at a lock of its own
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		cancel(nil)
		return l.ctx
	}
	l.ctx, l.cancel = &lockContext{Context: inner, lock: l}, cancel
	switch {
	case l.loss != nil:
		cancel(l.loss)
	case l.ended:
		cancel(ErrReleased)
	}
	return l.ctx
}

// Lost returns a channel that is closed when the lock is lost. It stays open
// when the lock is released. Like Context's Done it looks at the clock.
func (l *Lock) Lost() <-chan struct{} {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.loss != nil {
			close(l.lost)
		}
	}
	return l.lost
}

// Release gives the lock back. When it returns nil the lock was held when Release was
// called, up to the bound that the package's documentation states, and another process
// can have it. It takes no context: nothing may stop it, and a dead network delays it
// by some seconds (5 s for each statement that is left). A lock that was lost gives its
// *LostError, a second Release ErrReleased, so that a deferred Release is always
// right.
func (l *Lock) Release() error {
	err := l.core.release(l)
	if errors.Is(err, ErrReleased) {
		return err
	}
	l.mu.Lock()
	l.ended = true
	if l.cancel != nil {
		l.cancel(ErrReleased)
	}
	l.mu.Unlock()
	l.core.traceRelease(l, err)
	return err
}

// addKey makes the lock a user of a key, under core.mu.
func (l *Lock) addKey(k *key) {
	l.on = append(l.on, k)
	if !slices.Contains(l.conns, k.conn) {
		l.conns = append(l.conns, k.conn)
	}
}

// begin makes the lock one that is held, under core.mu.
func (l *Lock) begin(now time.Time) {
	l.complete, l.since, l.own = true, now, nil
	l.core.stats.held.Add(1)
	l.core.watchPauses()
}

// end counts a lock that is about to be released or lost, under core.mu: only the
// first of these ends it.
func (l *Lock) end() {
	if l.live() {
		l.core.stats.held.Add(-1)
		delete(l.core.notes, l)
	}
}

// holdsNow is holds for a lock that is held.
func (l *Lock) holdsNow(tag namespace.Tag) (namespace.Key, bool) {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	if !l.live() {
		return namespace.Key{}, false
	}
	return l.holds(tag)
}

// holds returns the lock's key with this tag.
func (l *Lock) holds(tag namespace.Tag) (namespace.Key, bool) {
	for _, k := range l.keys {
		if k.Tag() == tag {
			return k, true
		}
	}
	return namespace.Key{}, false
}

// live reports whether the lock is held, under core.mu.
func (l *Lock) live() bool { return l.complete && !l.released && l.cause == nil }

// A lockContext carries its lock and looks at the clock before it says that all
// is well.
type lockContext struct {
	context.Context
	lock *Lock
}

type lockContextKey struct{}

func (c *lockContext) Value(key any) any {
	if key == (lockContextKey{}) {
		return c.lock
	}
	return c.Context.Value(key)
}

// Done is also what a context that is made of this one asks for, once.
func (c *lockContext) Done() <-chan struct{} {
	_ = c.Err() // looks
	return c.Context.Done()
}

func (c *lockContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.lock.look()
	return c.Context.Err()
}

// carriedAll yields the live locks around a lock, itself included, under core.mu.
func (l *Lock) carriedAll(yield func(*Lock) bool) {
	for l != nil && yield(l) {
		l = l.core.carried(l.parent)
	}
}

// carried returns the innermost lock that a context carries and that is still
// held with this core, under core.mu.
func (c *core) carried(ctx context.Context) *Lock {
	l, _ := ctx.Value(lockContextKey{}).(*Lock)
	for l != nil && (l.core != c || !l.live()) {
		l, _ = l.parent.Value(lockContextKey{}).(*Lock)
	}
	return l
}
