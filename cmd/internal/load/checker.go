package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Violation is a broken promise.
type Violation struct {
	Invariant string `json:"invariant"` // exclusive, token, lost, expired, release, fence
	Lock      string `json:"lock"`
	What      string `json:"what"`
}

func (v Violation) String() string { return v.Invariant + ": " + v.Lock + ": " + v.What }

// A heldLease is a lease as its client knows it.
type heldLease struct {
	lease.Claim
	asked   time.Time     // when the request was sent
	granted time.Time     // when the answer arrived
	until   time.Time     // trusted until then; guarded by its lock's mu
	lasts   time.Duration // as the answer said: a store may grant more than the request asked for
}

// marginPart allows for clocks that run at different rates: one part in marginPart.
const marginPart = 10

// A checker observes all actions of clients, and is the resource that they write to.
type checker struct {
	locks  []lockChecker
	fenced bool
	ctx    context.Context // ends with the first violation
	cancel context.CancelFunc

	mu         sync.Mutex
	violations []Violation
}

// A lockChecker is the observed state of one lock.
type lockChecker struct {
	*checker
	mu     sync.Mutex
	holder *heldLease // nil = no known holder
	high   uint64     // the highest token so far
	tokens map[uint64]bool

	// The resource: its highest token, and the lease that last wrote to it.
	lastSeen uint64
	writer   *heldLease
}

func newChecker(locks int, fenced bool) *checker {
	c := &checker{locks: make([]lockChecker, locks), fenced: fenced}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for i := range c.locks {
		c.locks[i] = lockChecker{checker: c, tokens: map[uint64]bool{}}
	}
	return c
}

func (c *checker) report(invariant string, t *heldLease, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations = append(c.violations, Violation{invariant, t.Name, fmt.Sprintf("%s (token %d): ", t.Holder, t.Token) + fmt.Sprintf(format, args...)})
	c.cancel()
}

func (c *checker) found() []Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.violations
}

// floor returns the highest token so far. A lease requested after this call must have a greater one.
func (l *lockChecker) floor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high
}

// tokensKept is how many tokens of a lock are remembered. A smaller token that repeats is below the
// floor of all requests, except those that took this many grants.
const tokensKept = 1 << 15

// granted checks a new lease.
func (l *lockChecker) granted(got lease.Lease, asked, until time.Time, floor uint64) *heldLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &heldLease{Claim: got.Claim, asked: asked, granted: time.Now(), until: until, lasts: got.Remaining}
	switch {
	case t.Token <= floor:
		l.report("token", t, "not greater than %d, which was seen before the request", floor)
	case l.tokens[t.Token]:
		l.report("token", t, "granted twice")
	}
	if h := l.holder; h != nil && t.granted.Before(h.until) && t.granted.Before(t.until) {
		l.report("exclusive", t, "granted while %s (token %d) has the lease for another %v", h.Holder, h.Token, h.until.Sub(t.granted))
	}
	l.tokens[t.Token] = true
	l.high = max(l.high, t.Token)
	if len(l.tokens) > 2*tokensKept {
		for token := range l.tokens {
			if token+tokensKept < l.high {
				delete(l.tokens, token)
			}
		}
	}
	if l.holder == nil || l.holder.until.Before(t.until) {
		l.holder = t
	}
	return t
}

// renewed checks a renewal that the store granted.
func (l *lockChecker) renewed(t *heldLease, asked time.Time, remaining time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := asked.Add(remaining - remaining/marginPart); until.After(t.until) {
		t.until = until
	}
	now := time.Now()
	if h := l.holder; h == nil || now.After(h.until) {
		l.holder = t
	} else if h != t && now.Before(t.until) {
		l.report("exclusive", t, "renewed while %s (token %d) has the lease", h.Holder, h.Token)
	}
}

// refused checks a renewal or release that the store refused to the holder.
func (l *lockChecker) refused(t *heldLease, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := time.Until(t.until); left > 0 {
		l.report("lost", t, "the store says %q, %v before the lease can have ended", err, left)
	}
}

// done ends a lease for the checker, before its release or when its client considers it expired.
func (l *lockChecker) done(t *heldLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == t {
		l.holder = nil
	}
}

// write writes to the resource, which accepts a token that is not smaller than the last, and
// checks the result.
func (l *lockChecker) write(t *heldLease) (accepted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fenced && t.Token < l.lastSeen {
		if l.holder == t && time.Now().Before(t.until) {
			l.report("fence", t, "a write under the current lease refused: token %d was seen", l.lastSeen)
		}
		return false
	}
	if w := l.writer; w != nil && w.asked.After(t.granted) {
		l.report("fence", t, "a stale write accepted after one of %s (token %d)", w.Holder, w.Token)
	}
	l.lastSeen, l.writer = max(l.lastSeen, t.Token), t
	return true
}
