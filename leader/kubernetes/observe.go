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

// A sight is the Lease as this process saw it last. Whether it has expired is
// judged from the moment at which its record was new to this process: no other
// machine's clock is trusted.
type sight struct {
	lease *coordinationv1.Lease // nil = there is none, or none was seen
	since boottime.Moment       // when its spec was first seen
}

// see notes the Lease as it is now, and returns what is known of it.
func (b *Backend) see(lease *coordinationv1.Lease) sight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seeLocked(lease)
}

func (b *Backend) seeLocked(lease *coordinationv1.Lease) sight {
	next := b.seen.after(lease)
	if b.top == math.MaxInt32 && !next.continues(b.seen) {
		b.top = 0 // somebody deleted it, so that terms begin again
	}
	if lease != nil {
		b.top = max(b.top, value(lease.Spec.LeaseTransitions))
	}
	b.seen = next
	b.looks++
	return next
}

// glance reads the Lease beside the other methods. If they looked meanwhile, what it
// got may be the older one, and they never learn of it.
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

// continues reports whether it is the Lease that was seen before.
func (s sight) continues(last sight) bool {
	return s.lease != nil && (last.lease == nil || last.lease.UID == s.lease.UID)
}

// after is the sight of the Lease as it is now, if s was the one before.
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

// left is how long the Lease is not free for others than its holder; ttl is
// the duration of a Lease that has none.
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

// get reads the Lease, the newest there is; its lease is nil if there is none.
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

// put writes the Lease if it is still the one that next was made from: a Lease
// without a resourceVersion is created.
func (b *Backend) put(ctx context.Context, next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	write := b.update
	if next.ResourceVersion == "" {
		write = b.create
	}
	saved, err := write(ctx, next)
	if err != nil {
		return nil, b.failed("writing", err)
	}
	b.see(saved)
	return saved, nil
}

func (b *Backend) create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return b.leases.Create(ctx, l, metav1.CreateOptions{})
}

func (b *Backend) update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return b.leases.Update(ctx, l, metav1.UpdateOptions{})
}

// overtaken reports whether the write of next failed because the Lease is not the one
// that it was made from any more. Where it is created, 404 is the namespace's.
func overtaken(next *coordinationv1.Lease, err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsNotFound(err) && next.ResourceVersion != ""
}
