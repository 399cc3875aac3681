package advisory

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Lock is one acquisition, from its grant to its release or loss. It is safe for concurrent use.
// The zero Lock, which no acquisition made, has no key and counts as released.
type Lock struct {
	core   *core
	keys   []namespace.Key
	label  string
	parent context.Context // the context of the acquisition
	around *Lock           // the innermost lock that parent carries; nil = none

	mode session.Mode
	hold locktable.Holder // guarded by core.mu
	key  [1]namespace.Key

	ended  bool // by Release; the fields from here are guarded by mu
	mu     sync.Mutex
	ctx    context.Context // created on demand
	cancel context.CancelCauseFunc
	lost   chan struct{} // created on demand
	loss   *LostError
}

// Key returns the lock's key, or its first key if it has several.
func (l *Lock) Key() namespace.Key {
	if len(l.keys) == 0 {
		return namespace.Key{}
	}
	return l.keys[0]
}

// Keys returns the lock's keys, in the order in which they were taken.
func (l *Lock) Keys() []namespace.Key { return slices.Clone(l.keys) }

// Shared reports whether the lock is held in shared mode.
func (l *Lock) Shared() bool { return l.mode == session.Shared }

// PID returns the process ID of the PostgreSQL session that the lock was granted to, as in
// pg_stat_activity and pg_locks.
func (l *Lock) PID() uint32 {
	conns := l.hold.Conns() // immutable once the lock is granted
	if len(conns) == 0 {
		return 0
	}
	return connOf(conns[0]).pid
}

// Context returns a context for work under the lock. It is derived from the context of the
// acquisition. It also ends when the lock is lost or released. Its cause is then a *LostError
// or ErrReleased. Pass it to nested acquisitions: it shows that this lock is held, so that
// re-entrance and deadlocks are detected.
//
// Its Err and Done check the clock. Work that wakes up after the process was stopped detects a lost
// lock at its first check, before any goroutine could have notified it. Err of a context derived
// from it by context.WithValue does the same. A context derived by context.WithCancel, WithTimeout
// or an errgroup cannot check the clock: a timer cancels it, which takes a moment. Before a write
// that must not be late, check this context itself.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	ctx := l.ctx
	l.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	if l.core == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrReleased)
		return ctx
	}
	made, cancel := boottime.NewContext(context.WithValue(l.parent, lockContextKey{}, l), l.expired) // not under mu: the parent may check a lock of its own
	l.mu.Lock()
	if l.ctx != nil {
		ctx = l.ctx
		l.mu.Unlock()
		cancel(nil)
		return ctx
	}
	l.ctx, l.cancel = made, cancel
	loss, ended := l.loss, l.ended
	l.mu.Unlock()
	switch {
	case loss != nil:
		cancel(loss)
	case ended:
		cancel(ErrReleased)
	}
	return made
}

// expired ends the lock's context with the lock's loss, if the clock shows that it is lost.
func (l *Lock) expired() error {
	l.look()
	return nil
}

// Lost returns a channel that is closed when the lock is lost. It stays open when the lock is
// released. Like Done of Context, Lost checks the clock.
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

// newLock returns a lock that is not held yet.
func newLock(ctx context.Context, c *core, o Options) *Lock {
	l := &Lock{core: c, label: o.Label, mode: o.mode(), parent: ctx, around: carriedBy(ctx)}
	l.hold.Carrier = l
	if l.around != nil {
		l.hold.Around = &l.around.hold
	}
	c.table.Hold(&l.hold)
	return l
}

func lockOf(h *locktable.Holder) *Lock {
	return h.Carrier.(*Lock) //nolint:forcetypeassert // newLock sets it
}

// began counts a lock that is held from now on, under mu.
func (c *core) began() {
	c.stats.held.Add(1)
	c.watchPauses()
}

// since is the time of the grant of a lock that is, or was, held.
func (l *Lock) since() time.Time { return l.core.opened.Add(l.hold.Since()) }

// ended counts a lock that is no longer held, under mu.
func (c *core) ended(l *Lock) {
	c.stats.held.Add(-1)
	delete(c.notes, l)
}

// liveNow is live for callers that do not hold core.mu.
func (l *Lock) liveNow() bool {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	return l.live()
}

// holdsNow is holds for a lock that must also be live.
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
func (l *Lock) live() bool { return l.hold.Phase() == locktable.Active }

// lockContextKey is the key under which a lock's context carries the lock.
type lockContextKey struct{}

// carriedBy returns the innermost lock that a context carries, held or not, of any Locker. Do
// not call it under a mutex: a context can be code of the program.
func carriedBy(ctx context.Context) *Lock {
	l, _ := ctx.Value(lockContextKey{}).(*Lock)
	return l
}

// carried yields the locks around a request that this core still holds, the innermost first. It is
// called under core.mu.
func (c *core) carried(r *request) iter.Seq[*Lock] {
	return func(yield func(*Lock) bool) {
		for l := r.lock.around; l != nil; l = l.around {
			if l.core == c && l.live() && !yield(l) {
				return
			}
		}
	}
}

// look detects a lock whose deadline passed while no goroutine could notice: the process was
// stopped, or the machine suspended.
func (l *Lock) look() {
	now, conns := time.Now(), l.hold.Conns() // they do not change once the lock is granted
	i := slices.IndexFunc(conns, func(n *locktable.Conn) bool { return connOf(n).state(now) == session.Lost })
	if i < 0 {
		return
	}
	c := l.core
	c.mu.Lock()
	if l.live() {
		connOf(conns[i]).expire(now)
		c.run()
	}
	cause := l.hold.Cause()
	c.mu.Unlock()
	if cause != nil {
		_ = l.lose(cause) // the goroutine that found the loss may not have reached this lock yet
	}
}

// mode returns the lock mode that the options select.
func (o Options) mode() session.Mode {
	if o.Shared {
		return session.Shared
	}
	return session.Exclusive
}
