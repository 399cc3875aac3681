package leadertest

import (
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// An Election is an in-memory store that holds one election. Its methods are safe for concurrent use.
type Election struct {
	mu         sync.Mutex
	leadership *leadership // nil = nobody leads
	term       driver.Term
	clean      bool          // the last leader released
	changed    chan struct{} // closed and replaced when leadership may be free
	all        []*Backend
}

// A leadership lasts from its start to its end. It is guarded by the Election's mu.
type leadership struct {
	owner    *Backend // nil if it was stolen
	identity string
	term     driver.Term // zero = a Wait took it, and the next TryAcquire adopts it
	since    time.Time
	until    time.Time // renewed until
	expiry   *time.Timer
	lost     chan struct{} // closed when the owner may learn that it is gone
}

// NewElection returns an election that nobody has led yet. Its first term is 1.1, and starts cleanly.
func NewElection() *Election {
	return &Election{term: driver.Term{Era: 1}, clean: true, changed: make(chan struct{})}
}

// Backend returns another node's access to the election.
func (e *Election) Backend() *Backend {
	b := &Backend{election: e, ttl: driver.DefaultLeaseDuration, heal: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, b)
	return b
}

// Kill ends the present leadership, as if the server had ended the leader's session: leadership is free at
// once, the leader learns of it, and the next leader does not start cleanly.
func (e *Election) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leadership != nil {
		e.endLocked(e.leadership, false)
	}
}

// Steal makes an outsider lead for ttl, in a new term, even if another node leads.
func (e *Election) Steal(identity string, ttl time.Duration) driver.Term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leadership != nil {
		e.endLocked(e.leadership, false)
	}
	t := e.beginLocked(nil, ttl)
	e.electLocked(t, identity)
	return t.term
}

// SetUnavailable makes all calls of all nodes fail with err, until it is called with nil. Meanwhile a
// lease continues, and can end.
func (e *Election) SetUnavailable(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.all {
		b.failure = err
	}
}

// Leader returns the present leader.
func (e *Election) Leader() (holder driver.Holder, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expireLocked()
	if e.leadership == nil || e.leadership.term.IsZero() {
		return driver.Holder{}, false
	}
	return driver.Holder{Identity: e.leadership.identity, Term: e.leadership.term, Since: e.leadership.since, Detail: "in memory"}, true
}

// beginLocked takes leadership, which must be free.
func (e *Election) beginLocked(owner *Backend, ttl time.Duration) *leadership {
	t := &leadership{owner: owner, lost: make(chan struct{}), until: time.Now().Add(ttl)}
	t.expiry = time.AfterFunc(ttl, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.expireLocked() // unless it was renewed just now
	})
	e.leadership = t
	return t
}

// renewLocked extends a leadership.
func (t *leadership) renewLocked(ttl time.Duration) {
	t.until = time.Now().Add(ttl)
	t.expiry.Reset(ttl)
}

// electLocked gives a leadership its term.
func (e *Election) electLocked(t *leadership, identity string) (clean bool) {
	e.term.N++
	t.identity, t.term, t.since = identity, e.term, time.Now()
	clean, e.clean = e.clean, false
	return clean
}

// expireLocked frees leadership whose time is over, even if its timer has not run yet.
func (e *Election) expireLocked() {
	if t := e.leadership; t != nil && !time.Now().Before(t.until) {
		e.endLocked(t, false)
	}
}

// endLocked frees leadership, if t still has it.
func (e *Election) endLocked(t *leadership, clean bool) {
	if e.leadership != t {
		return
	}
	e.leadership = nil
	t.expiry.Stop()
	if !t.term.IsZero() {
		e.clean = clean
	}
	if t.owner == nil || !t.owner.cut {
		t.announceLossLocked() // otherwise the owner learns of it only when the cut ends
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

// announceLossLocked tells the owner that the leadership is over.
func (t *leadership) announceLossLocked() {
	select {
	case <-t.lost:
	default:
		close(t.lost)
	}
}
