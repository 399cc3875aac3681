package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Violation is a promise that was not kept.
type Violation struct {
	Invariant string `json:"invariant"` // exclusive, token, lost, expired, release, fence
	Lock      string `json:"lock"`
	What      string `json:"what"`
}

func (v Violation) String() string { return v.Invariant + ": " + v.Lock + ": " + v.What }

// A heldLease is a lease as its client sees it.
type heldLease struct {
	lease.Claim
	asked   time.Time     // when the request was sent
	granted time.Time     // when it was answered
	until   time.Time     // trusted until then; guarded by its lock's mu
	lasts   time.Duration // as the answer said: a store may give more than was asked for
}

// marginPart is what clocks that run at different rates are allowed: one in so many.
const marginPart = 10

// A checker sees everything that clients do, and the resource that they write to.
type checker struct {
	locks  []lockChecker
	fenced bool
	ctx    context.Context // ends with the first violation
	cancel context.CancelFunc

	mu         sync.Mutex
	violations []Violation
}

// A lockChecker is what is known of one lock.
type lockChecker struct {
	*checker
	mu     sync.Mutex
	holder *heldLease // nil = nobody who is known of
	high   uint64     // the highest token that was seen
	tokens map[uint64]bool

	// The resource, and who wrote to it last.
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

// floor is asked for before a lease is: the lease's token must be greater.
func (l *lockChecker) floor() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high
}

// The tokens of a lock that are remembered: a smaller one that repeats is below the
// floor of all requests but those that took this many grants.
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

// done is called before a lease is released, or when its client takes it for expired.
func (l *lockChecker) done(t *heldLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == t {
		l.holder = nil
	}
}

// write writes to the resource, which accepts a token that is not smaller than the
// last, and checks what came of it.
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
