package leasehttp

import (
	"context"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// A Lease is a lease that this process acquired. It tracks how long the process may act on it. It
// is safe for concurrent use.
type Lease struct {
	request lease.AcquireRequest
	margin  time.Duration
	share   shared.Share // as it was granted; zero = an ordinary lease

	mu    sync.Mutex
	last  lease.Lease // the server's last answer
	trust lease.Moment
	beat  *heartbeat // nil = none

	release    sync.Once
	releaseErr error
}

func newLease(r lease.AcquireRequest, l lease.Lease, from lease.Moment, margin time.Duration) *Lease {
	return &Lease{request: r, margin: margin, last: l, trust: lease.Trust(from, l, margin)}
}

// Claim returns the proof of the lease.
func (l *Lease) Claim() lease.Claim { return l.Last().Claim }

// FencingToken returns the token to pass to a resource that the lease protects. The resource must
// accept only tokens that are not less than the greatest it has seen. The token of a share rises
// only among the leases of its slot: see Share.
func (l *Lease) FencingToken() uint64 { return l.Last().Token }

// Share returns the share as it was granted: its Slot and its Fence. It is zero for an ordinary
// lease, and for an adopted one. To see how long the share lasts, call Last.
func (l *Lease) Share() shared.Share { return l.share }

// FencingTokenValue returns the same as FencingToken.
func (l *Lease) FencingTokenValue() uint64 { return l.FencingToken() }

// Last returns the lease from the server's last answer. Its times are from the server's clock: do
// not compare them with this machine's clock.
func (l *Lease) Last() lease.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Remaining returns how long the lease can be trusted without another renewal; 0 = no longer.
func (l *Lease) Remaining() time.Duration { return l.trusted().Remaining() }

func (l *Lease) trusted() lease.Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trust
}

// renewed records a renewal. It never shortens the trust. It returns false if the trust has ended,
// because the program may already have acted on that.
func (l *Lease) renewed(next lease.Lease, from lease.Moment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = next
	if l.trust.Passed() {
		return false
	}
	if trust := lease.Trust(from, next, l.margin); trust.Remaining() > l.trust.Remaining() {
		l.trust = trust
	}
	return true
}

type leaseKey struct{}

// FromContext returns the lease of a heartbeat's context, such as the context of Do; false if there
// is none.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// FencingToken returns the fencing token of the lease of ctx; see FromContext. If ctx has
// no lease, it returns 0, which is not the token of any lease.
func FencingToken(ctx context.Context) uint64 {
	if l, ok := FromContext(ctx); ok {
		return l.FencingToken()
	}
	return 0
}
