package leadertest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Backend is one node's access to an Election. Beyond the contract of driver.Backend, all its methods are
// safe for concurrent use.
type Backend struct {
	election *Election

	// The fields below are guarded by the Election's mu.
	waits      int         // calls of Wait that have not returned
	leadership *leadership // the last one acquired here; it may have ended
	clean      bool        // that leadership had a clean start
	ttl        time.Duration
	failure    error
	cut        bool
	heal       chan struct{} // closed when the cut ends
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.LossNotifier
	driver.Termer
	driver.Successor
	driver.Inspector
	driver.Contest
	io.Closer
} = (*Backend)(nil)

// Kill ends the node's leadership, if it leads, as Election.Kill does.
func (b *Backend) Kill() {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	b.endOwnLocked(false)
}

// SetUnavailable makes all calls of this node fail with err, until it is called with nil. Meanwhile the
// node's lease continues, and can expire.
func (b *Backend) SetUnavailable(err error) {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	b.failure = err
}

// Cut silently cuts the node's network: its calls hang until their ctx ends, it does not learn of a loss, and
// its leadership ends when its lease ends. Close then closes only the node's own end of the connection.
func (b *Backend) Cut() {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	b.cut = true
}

// Heal ends a Cut: calls that hang continue.
func (b *Backend) Heal() {
	e := b.election
	e.mu.Lock()
	defer e.mu.Unlock()
	if !b.cut {
		return
	}
	b.cut = false
	close(b.heal)
	b.heal = make(chan struct{})
	if b.leadership != nil && e.leadership != b.leadership {
		b.leadership.announceLossLocked()
	}
}

// TryAcquire implements driver.Backend.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if err := b.reachLocked(ctx); err != nil {
		return false, fmt.Errorf("leadertest: acquire: %w", err)
	}
	e := b.election
	defer e.mu.Unlock()
	b.ttl = ttl
	t := e.leadership
	if t != nil && t.owner == b && t != b.leadership {
		e.endLocked(t, false) // left behind by a Close during a cut
		t = nil
	}
	switch {
	case t == nil:
		t = e.beginLocked(b, ttl)
	case t.owner != b:
		return false, nil
	}
	t.renewLocked(ttl)
	b.leadership = t
	if t.term.IsZero() {
		b.clean = e.electLocked(t, identity)
	}
	return true, nil
}

// Renew implements driver.Backend.
func (b *Backend) Renew(ctx context.Context, _ string, ttl time.Duration) error {
	if b.knowsLoss() {
		return fmt.Errorf("leadertest: renew: %w", driver.ErrLost)
	}
	if err := b.reachLocked(ctx); err != nil {
		return fmt.Errorf("leadertest: renew: %w", err)
	}
	e := b.election
	defer e.mu.Unlock()
	if e.leadership == nil || e.leadership != b.leadership || e.leadership.term.IsZero() {
		return fmt.Errorf("leadertest: renew: %w", driver.ErrLost)
	}
	e.leadership.renewLocked(ttl)
	return nil
}

// knowsLoss reports whether Lost has announced that leadership is gone.
func (b *Backend) knowsLoss() bool {
	select {
	case <-b.Lost():
		return true
	default:
		return false
	}
}

// Release implements driver.Backend.
func (b *Backend) Release(ctx context.Context, _ string) error {
	if err := b.reachLocked(ctx); err != nil {
		return fmt.Errorf("leadertest: release: %w", err)
	}
	defer b.election.mu.Unlock()
	b.endOwnLocked(true)
	return nil
}

// Close implements io.Closer.
func (b *Backend) Close() error {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	if !b.cut {
		b.endOwnLocked(false)
	}
	b.leadership = nil
	return nil
}

// Wait implements driver.Waiter. When it returns nil, it holds leadership.
func (b *Backend) Wait(ctx context.Context) error {
	e := b.election
	b.addWait(1)
	defer b.addWait(-1)
	for {
		if err := b.reachLocked(ctx); err != nil {
			return fmt.Errorf("leadertest: wait: %w", err)
		}
		if e.leadership == nil {
			b.leadership = e.beginLocked(b, b.ttl)
		}
		held, changed := e.leadership.owner == b, e.changed
		e.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// Lost implements driver.LossNotifier.
func (b *Backend) Lost() <-chan struct{} {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	if b.leadership == nil {
		return nil // never acquired, or closed
	}
	return b.leadership.lost
}

// Term implements driver.Termer.
func (b *Backend) Term() driver.Term {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	if b.leadership == nil {
		return driver.Term{}
	}
	return b.leadership.term
}

// CleanStart implements driver.Successor.
func (b *Backend) CleanStart() bool {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	return b.clean
}

func (b *Backend) addWait(n int) {
	b.election.mu.Lock()
	defer b.election.mu.Unlock()
	b.waits += n
}

// Contested implements driver.Contest. It reports whether another node leads or is in Wait.
func (b *Backend) Contested(ctx context.Context) (bool, error) {
	if err := b.reachLocked(ctx); err != nil {
		return false, fmt.Errorf("leadertest: contested: %w", err)
	}
	e := b.election
	defer e.mu.Unlock()
	others := slices.ContainsFunc(e.all, func(o *Backend) bool { return o != b && o.waits > 0 })
	return others || e.leadership != nil && e.leadership.owner != b, nil
}

// Leader implements driver.Inspector.
func (b *Backend) Leader(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	if err := b.reachLocked(ctx); err != nil {
		return driver.Holder{}, false, fmt.Errorf("leadertest: leader: %w", err)
	}
	b.election.mu.Unlock()
	holder, ok = b.election.Leader()
	return holder, ok, nil
}

// reachLocked connects to the store. It returns with mu locked, or an error.
func (b *Backend) reachLocked(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.election.mu.Lock()
		if !b.cut {
			break
		}
		heal := b.heal
		b.election.mu.Unlock()
		select {
		case <-heal:
		case <-ctx.Done():
		}
	}
	if failure := b.failure; failure != nil {
		b.election.mu.Unlock()
		return failure
	}
	b.election.expireLocked()
	return nil
}

// endOwnLocked ends this node's leadership. If a Close during a cut left it behind, its end is not clean.
func (b *Backend) endOwnLocked(clean bool) {
	if t := b.election.leadership; t != nil && t.owner == b {
		b.election.endLocked(t, clean && t == b.leadership)
	}
}
