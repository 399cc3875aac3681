package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientset "k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/pglatch/pglatch/leader/driver"
)

// maxOvertaken is how often a write is repeated that another write overtook.
const maxOvertaken = 5

// errLate means that an earlier request was executed late. Release frees the Lease, or the next attempt takes
// it.
var errLate = errors.New("an earlier request of this Backend was executed late")

// A Backend keeps the leadership of one election in a Lease of the Kubernetes API. It belongs to one Elector.
// It implements driver.Backend, and the optional interfaces Waiter, Termer, Successor, Inspector and
// io.Closer.
type Backend struct {
	// Logger receives a warning when the API forbids watching the Lease. nil = discard. Set it before the
	// first call.
	Logger *slog.Logger

	leases    coordinationclient.LeaseInterface
	namespace string
	name      string
	suffix    string // of holderIdentity: unique to this Backend, across all processes

	held      *coordinationv1.Lease // as last written; nil = nothing is held
	sure      bool                  // false = held may not have been written: its resourceVersion is the one before
	stamp     stamp                 // of the last claim or renewal
	term      driver.Term           // of the last success
	clean     bool                  // the previous leader released
	ttl       time.Duration         // of the last attempt
	watch     *watching             // nil = none is open
	pollUntil time.Time             // no watch is tried before then, because it was forbidden

	warned bool // the warning was logged

	mu    sync.Mutex
	seen  sight
	looks int   // how often seen was set
	top   int32 // greatest leaseTransitions seen
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Termer
	driver.Successor
	driver.Inspector
	driver.Labeled
} = (*Backend)(nil)

// NewBackend returns a Backend on the Lease of that namespace and name. The first leader creates the Lease.
// The client needs the verbs get, create and update on it. It should also have watch; without it, followers
// poll. NewBackend does no I/O.
//
// A custom client should use HTTP/1.1, as the clients of NewFromEnv and NewFromConfig do.
func NewBackend(client clientset.Interface, namespace, name string) *Backend {
	return &Backend{
		leases: client.CoordinationV1().Leases(namespace), namespace: namespace, name: name,
		suffix: newSuffix(), ttl: driver.DefaultLeaseDuration,
	}
}

// LogAttrs returns the namespace and the name of the Lease.
func (b *Backend) LogAttrs() []slog.Attr {
	return []slog.Attr{slog.String("namespace", b.namespace), slog.String("lease", b.name)}
}

// TryAcquire implements driver.Backend. It reads the Lease and takes it in two cases: nobody holds it, or its
// record has not changed for the lease's duration, by this process's clock. If another write comes first, it
// returns false. After an error, this Backend may have taken the Lease; Release and the next attempt
// recognize that by the suffix of the holder. ttl must be a whole number of seconds.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	seconds, err := wholeSeconds(ttl)
	if err != nil {
		return false, err
	}
	b.ttl = ttl
	if b.sure { // if this attempt fails, the node does not lead, and Release gives up the earlier leadership
		b.sure, b.clean = false, false
	}
	current, err := b.get(ctx)
	if err != nil {
		return false, err
	}
	if !b.free(current) {
		b.held = nil
		return false, nil
	}
	last := b.highest()
	if last == math.MaxInt32 {
		return false, driver.Permanent(fmt.Errorf("leader: Lease %s/%s: no term can follow its leaseTransitions %d: delete it, terms then begin again", b.namespace, b.name, last))
	}
	b.stamp = stampNow()
	claim := claimed(current.lease, b.name, identity+b.suffix, b.stamp, seconds, last+1)
	b.held, b.sure = claim, false
	b.clean = current.lease != nil && isClean(current.lease)
	saved, err := b.put(ctx, claim)
	switch {
	case overtaken(claim, err):
		// Another node's write overtook this one, or this very claim did: a client repeats a request when the
		// answer was lost, and the repetition then reports a conflict.
		if current, err = b.get(ctx); err != nil {
			return false, err
		}
		if saved = current.lease; b.holds(saved) {
			break
		}
		if saved != nil && b.mine(saved) {
			return false, b.failed("claiming", errLate)
		}
		b.held = nil
		return false, nil
	case apierrors.IsNotFound(err):
		b.held = nil
		return false, driver.Permanent(fmt.Errorf("leader: Lease %s/%s cannot be created: is there a namespace %s?: %w", b.namespace, b.name, b.namespace, err))
	case err != nil:
		return false, err
	}
	b.held, b.sure, b.term = saved, true, termOf(saved)
	b.stopWatching()
	return true, nil
}

// Renew implements driver.Backend. It fails with leader.ErrLost if another holder has had the Lease since
// TryAcquire, even another Backend with the same identity, or if the Lease is gone.
func (b *Backend) Renew(ctx context.Context, _ string, ttl time.Duration) error {
	seconds, err := wholeSeconds(ttl)
	if err != nil {
		return err
	}
	if b.held == nil || !b.sure {
		return fmt.Errorf("leader: Lease %s/%s: %w: it is not held", b.namespace, b.name, driver.ErrLost)
	}
	for range maxOvertaken {
		next := b.renewal(seconds)
		var saved *coordinationv1.Lease
		if saved, err = b.put(ctx, next); err == nil {
			b.held = saved
			return nil
		}
		if !overtaken(next, err) {
			return err
		}
		current, failure := b.get(ctx)
		switch {
		case failure != nil:
			return failure
		case !b.holds(current.lease):
			return b.lost(current.lease)
		}
		b.held = current.lease
	}
	return err
}

func (b *Backend) renewal(seconds int32) *coordinationv1.Lease {
	b.stamp, seconds = b.stamp.follow(stampNow(), seconds)
	return renewed(b.held, b.stamp, seconds)
}

// Release implements driver.Backend. It empties the Lease's holder, as client-go's electors do, so that any
// candidate may take it at once. After a failed attempt it ensures that the attempt does not succeed later.
func (b *Backend) Release(ctx context.Context, _ string) error {
	b.stopWatching()
	if b.held == nil {
		return nil
	}
	current, err := b.held, error(nil)
	if !b.sure {
		current = nil
	}
	for i := range maxOvertaken {
		if i > 0 || !b.sure {
			var s sight
			if s, err = b.get(ctx); err != nil {
				return err
			}
			current = s.lease
		}
		next := b.releaseRecord(current)
		if next == nil {
			break
		}
		if _, err = b.put(ctx, next); err == nil {
			break
		}
		if !overtaken(next, err) {
			return err
		}
	}
	if err == nil {
		b.held = nil
	}
	return err
}

// releaseRecord returns the record that Release writes; nil if there is nothing to write.
func (b *Backend) releaseRecord(current *coordinationv1.Lease) *coordinationv1.Lease {
	switch {
	case current != nil && b.mine(current):
		return released(current, b.sure || b.clean)
	case b.sure:
		return nil // another holder's
	case current == nil && b.held.ResourceVersion == "":
		// A request to create the Lease may still be under way. It fails once there is a Lease.
		return claimed(nil, b.name, "", stampNow(), 1, b.highest())
	case current != nil && current.ResourceVersion == b.held.ResourceVersion:
		return voided(current) // a request to take it may still be under way
	}
	return nil
}

// Close drops the leadership without a call to the API. Other nodes can lead when the lease has ended;
// this Backend can lead again at once. It always returns nil.
func (b *Backend) Close() error {
	b.stopWatching()
	b.held, b.pollUntil = nil, time.Time{}
	return nil
}

// Term implements driver.Termer. It is leaseTransitions, in era 0. Terms start over if somebody deletes the
// Lease, and a candidate that never saw it creates it again.
func (b *Backend) Term() driver.Term { return b.term }

// CleanStart implements driver.Successor. It is true if the previous leader used this package and released
// leadership. It is false after client-go's electors, which do not wait for work to end, and for a Lease
// that was just created.
func (b *Backend) CleanStart() bool { return b.clean }

// mine reports whether the holder is this Backend, in any term.
func (b *Backend) mine(l *coordinationv1.Lease) bool {
	holder := value(l.Spec.HolderIdentity)
	return len(holder) >= len(b.suffix) && holder[len(holder)-len(b.suffix):] == b.suffix
}

// holds reports whether the Lease is this Backend's claim, or a renewal of it.
func (b *Backend) holds(l *coordinationv1.Lease) bool {
	return l != nil && b.mine(l) && termOf(l) == termOf(b.held)
}

// free reports whether this Backend may take the Lease. It may always take its own: that is the result of an
// attempt whose outcome was unknown.
func (b *Backend) free(s sight) bool {
	return s.left(b.ttl) == 0 || b.mine(s.lease)
}

// highest returns the greatest leaseTransitions that this Backend saw.
func (b *Backend) highest() int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.top
}

func (b *Backend) lost(now *coordinationv1.Lease) error {
	b.held = nil
	what := "it was deleted"
	if now != nil {
		what = fmt.Sprintf("its holder is %q, in term %v", value(now.Spec.HolderIdentity), termOf(now))
	}
	return fmt.Errorf("leader: Lease %s/%s: %w: %s", b.namespace, b.name, driver.ErrLost, what)
}

// failed adds the operation to an error. An operation that the API forbids or rejects as invalid is a
// permanent error.
func (b *Backend) failed(doing string, err error) error {
	failure := fmt.Errorf("leader: %s Lease %s/%s: %w", doing, b.namespace, b.name, err)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) {
		return driver.Permanent(failure)
	}
	return failure
}

// wholeSeconds returns ttl as a Lease stores it.
func wholeSeconds(ttl time.Duration) (int32, error) {
	if ttl < time.Second || ttl%time.Second != 0 || ttl/time.Second >= math.MaxInt32 {
		return 0, &driver.ConfigError{Field: "LeaseDuration", Value: ttl, Remedy: "use whole seconds: a Lease stores its duration in them"}
	}
	return int32(ttl / time.Second), nil
}
