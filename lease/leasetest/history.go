package leasetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/lease"
)

// ErrIllegal is the error of Check for a history that no correct store can produce.
var ErrIllegal = errors.New("leasetest: illegal history")

// A History records the answers that clients got about leases: Client records clients of this
// process, and Add those of others. The names must not have had a lease before, and the History
// must record all operations on them, except sweeps. It does not support LockDelay and MinHold.
// If a call returned an error that package lease does not define, it may or may not have had an
// effect, at that time or later. Many such calls make Check slow. All methods are safe for
// concurrent use.
type History struct {
	start time.Time

	mu      sync.Mutex
	ops     []porcupine.Operation
	trusts  map[string]*trust // by lease id
	losses  []loss
	counted Counts
}

// Counts are the numbers of calls that a History has recorded.
type Counts struct {
	Operations int // all that Check judges
	Granted    int // leases, each once
	Refused    int // acquires, because another client had the lease
	Ended      int // renewals and releases of leases that had expired, or belonged to another client by then
	Unknown    int // calls that had an error from outside package lease
}

// A trust is the time in which a client trusted one lease, on the History's clock.
type trust struct {
	claim    lease.Claim
	asked    time.Duration
	from     time.Duration
	until    time.Duration
	released time.Duration // the first call that released it; 0 = none
}

// A loss is a refusal of a lease that its client still trusted. A refusal after the client has
// begun to release the lease is not a loss.
type loss struct {
	of        *trust
	at, until time.Duration
	err       error
}

func (t *trust) end() time.Duration {
	if t.released != 0 {
		return min(t.until, t.released)
	}
	return t.until
}

// NewHistory makes an empty History.
func NewHistory() *History {
	return &History{start: time.Now(), trusts: make(map[string]*trust)}
}

// Client returns a store that behaves like store and records its calls.
func (h *History) Client(store lease.Store) lease.Store { return recorder{store, h} }

// Counts returns the counts so far.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counted
}

// Check returns nil if a correct store could have given all the answers. It checks exclusive
// ownership by the store's clock and by the clients' trust, and strictly rising tokens. The store
// must not have refused a lease that its client could still trust, and the order of operations must
// agree with the times of calls and answers. If the history is illegal, the error matches
// ErrIllegal. If the check did not finish within limit, it returns another error.
func (h *History) Check(limit time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var faults []error
	if err := judge.Holds(h.holdsLocked(), 1); err != nil {
		faults = append(faults, fmt.Errorf("%w: %w", ErrIllegal, err))
	}
	for _, l := range h.losses {
		if l.of.released == 0 || l.of.released > l.at {
			faults = append(faults, fmt.Errorf("%w: a lease was lost with %v to go: %w", ErrIllegal, l.until-l.at, l.err))
		}
	}
	switch porcupine.CheckOperationsTimeout(model(), visible(h.ops), limit) {
	case porcupine.Illegal:
		faults = append(faults, fmt.Errorf("%w: the answers have no order that a lease allows", ErrIllegal))
	case porcupine.Unknown:
		faults = append(faults, fmt.Errorf("leasetest: %d operations could not be checked in %v", len(h.ops), limit))
	}
	return errors.Join(faults...)
}

// visible leaves out the acquires of unknown outcome that no answer can need: nobody was refused because of their holder,
// and no claim on their name was stale. Without them, the verdict is the same, and there are far fewer orders to try.
func visible(all []porcupine.Operation) []porcupine.Operation {
	type who struct{ name, holder string }
	needed := make(map[who]bool)
	for _, op := range all {
		c, a := op.Input.(call), op.Output.(answer)
		if held, ok := errors.AsType[*lease.HeldError](a.err); ok {
			needed[who{c.claim.Name, held.Holder}] = true
		}
		if errors.Is(a.err, lease.ErrStale) {
			needed[who{c.claim.Name, ""}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(op porcupine.Operation) bool {
		c, a := op.Input.(call), op.Output.(answer)
		return a.lost && c.verb == acquire && !needed[who{c.claim.Name, c.claim.Holder}] && !needed[who{c.claim.Name, ""}]
	})
}

// holdsLocked returns the times in which clients trusted leases.
func (h *History) holdsLocked() (holds []judge.Hold) {
	for _, t := range h.trusts {
		if t.from < t.end() {
			holds = append(holds, judge.Hold{
				Key: t.claim.Name, Who: t.claim.Holder, Token: t.claim.Token,
				Begin: judge.Moment{Earliest: int64(t.asked), Latest: int64(t.from)}, End: judge.At(int64(t.end())),
			})
		}
	}
	return holds
}

func (h *History) now() time.Duration { return time.Since(h.start) }

// record records a call that began at began and was answered now. until is the end of the client's
// trust.
func (h *History) record(c call, began, now, until time.Duration, l lease.Lease, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := answer{lease: l, err: err}
	a.lease.Metadata = nil // so that answers can be compared
	switch {
	case err == nil:
		h.answeredLocked(c, began, now, until, l)
	case errors.Is(err, lease.ErrBusy), errors.Is(err, lease.ErrInvalid):
		return // nothing was done
	case errors.Is(err, lease.ErrHeld):
		h.counted.Refused++
	case lease.IsOver(err):
		h.counted.Ended++
		h.refusedLocked(c, now, err)
	default:
		h.counted.Unknown++
		a = answer{lost: true}
	}
	h.counted.Operations++
	op := porcupine.Operation{Input: c, Call: int64(began), Output: a, Return: int64(now)}
	if a.lost {
		op.Return = math.MaxInt64 // it may still have an effect
	}
	h.ops = append(h.ops, op)
}

func (h *History) answeredLocked(c call, began, now, until time.Duration, l lease.Lease) {
	if c.verb == release {
		return
	}
	t, known := h.trusts[l.ID]
	if !known {
		if c.verb == acquire {
			h.counted.Granted++
		}
		t = &trust{claim: l.Claim, asked: began, from: now}
		h.trusts[l.ID] = t
	}
	t.until = max(t.until, until)
}

// refusedLocked finds leases that were lost: refused while their client could
// trust them.
func (h *History) refusedLocked(c call, now time.Duration, err error) {
	if t, known := h.trusts[c.claim.ID]; known && t.claim == c.claim && now < t.until {
		h.losses = append(h.losses, loss{t, now, t.until, err})
	}
}

// releasing records that a claim is about to be released.
func (h *History) releasing(c lease.Claim, began time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, known := h.trusts[c.ID]; known && t.claim == c && t.released == 0 {
		t.released = began
	}
}

// trusted returns until when a client of this process trusts a lease that it requested at began.
func trusted(began time.Duration, l lease.Lease) time.Duration {
	return began + l.Remaining - l.Remaining/10
}

// A recorder is a client's Store.
type recorder struct {
	lease.Store
	history *History
}

func (r recorder) Acquire(ctx context.Context, request lease.AcquireRequest) (lease.Lease, error) {
	c := call{verb: acquire, claim: lease.Claim{Name: request.Name, Holder: request.Holder}, key: request.IdempotencyKey}
	began := r.history.now()
	l, err := r.Store.Acquire(ctx, request)
	r.history.record(c, began, r.history.now(), trusted(began, l), l, err)
	return l, err
}

func (r recorder) Renew(ctx context.Context, request lease.RenewRequest) (lease.Lease, error) {
	began := r.history.now()
	l, err := r.Store.Renew(ctx, request)
	r.history.record(call{verb: renew, claim: request.Claim}, began, r.history.now(), trusted(began, l), l, err)
	return l, err
}

func (r recorder) Release(ctx context.Context, c lease.Claim) error {
	began := r.history.now()
	r.history.releasing(c, began)
	err := r.Store.Release(ctx, c)
	r.history.record(call{verb: release, claim: c}, began, r.history.now(), 0, lease.Lease{}, err)
	return err
}
