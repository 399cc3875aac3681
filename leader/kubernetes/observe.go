package kubernetes

import (
	"context"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A sight is the Lease as this process last saw it. Expiry counts from the moment at which the record was new
// to this process. No other machine's clock is trusted.
type sight struct {
	lease *coordinationv1.Lease // nil = there is none, or none was seen
	since boottime.Moment       // when its spec was first seen
}

// see records the present Lease and returns its sight.
func (b *Backend) see(lease *coordinationv1.Lease) sight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seeLocked(lease)
}

func (b *Backend) seeLocked(lease *coordinationv1.Lease) sight {
	next := b.seen.after(lease)
	if b.top == math.MaxInt32 && !next.continues(b.seen) {
		b.top = 0 // the Lease was deleted, so terms begin again
	}
	if lease != nil {
		b.top = max(b.top, value(lease.Spec.LeaseTransitions))
	}
	b.seen = next
	b.looks++
	return next
}

// glance reads the Lease concurrently with the other methods. If they read it meanwhile, glance may have the
// older record. It then does not record it.
func (b *Backend) glance(ctx context.Context) (sight, error) {
	b.mu.Lock()
	before := b.looks
	b.mu.Unlock()
	lease, err := b.fetch(ctx)
	if err != nil {
		return sight{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looks != before {
		return b.seen.after(lease), nil
	}
	return b.seeLocked(lease), nil
}

// continues reports whether it is the same Lease as before.
func (s sight) continues(last sight) bool {
	return s.lease != nil && (last.lease == nil || last.lease.UID == s.lease.UID)
}

// after returns the sight of the present Lease; s is the one before.
func (s sight) after(lease *coordinationv1.Lease) sight {
	switch {
	case lease == nil:
		return sight{}
	case s.lease == nil || s.lease.UID != lease.UID || !equality.Semantic.DeepEqual(s.lease.Spec, lease.Spec):
		return sight{lease, boottime.Present()}
	}
	return sight{lease, s.since}
}

func (b *Backend) lastSeen() sight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// left returns how long the Lease is reserved for its holder. ttl is the duration of a Lease that has none.
func (s sight) left(ttl time.Duration) time.Duration {
	if s.lease == nil || value(s.lease.Spec.HolderIdentity) == "" {
		return 0
	}
	if seconds := s.lease.Spec.LeaseDurationSeconds; seconds != nil {
		ttl = time.Duration(*seconds) * time.Second
	}
	return max(s.since.Add(ttl).Until(), 0)
}

// outdates reports whether an event of a watch is older than what was seen.
func (s sight) outdates(event *coordinationv1.Lease) bool {
	if s.lease == nil || s.lease.UID != event.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(event.ResourceVersion, s.lease.ResourceVersion)
	return err == nil && order <= 0
}

// get reads the newest Lease. The sight's lease is nil if there is none.
func (b *Backend) get(ctx context.Context) (sight, error) {
	lease, err := b.fetch(ctx)
	if err != nil {
		return sight{}, err
	}
	return b.see(lease), nil
}

func (b *Backend) fetch(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := b.leases.Get(ctx, b.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, b.failed("reading", err)
	}
	return lease, nil
}

// put writes next if the Lease has not changed since next was made from it. A Lease without a resourceVersion
// is created.
func (b *Backend) put(ctx context.Context, next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	write := func() (*coordinationv1.Lease, error) { return b.leases.Update(ctx, next, metav1.UpdateOptions{}) }
	if next.ResourceVersion == "" {
		write = func() (*coordinationv1.Lease, error) { return b.leases.Create(ctx, next, metav1.CreateOptions{}) }
	}
	saved, err := write()
	if err != nil {
		return nil, b.failed("writing", err)
	}
	b.see(saved)
	return saved, nil
}

// overtaken reports whether the write of next failed because the Lease has changed since next was made from
// it. On a create, 404 means that the namespace is missing.
func overtaken(next *coordinationv1.Lease, err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsNotFound(err) && next.ResourceVersion != ""
}
