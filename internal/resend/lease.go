// Package resend has the rules for a client whose requests for a lease may lose their answers. The
// client sends the same request again until it knows the outcome. So it holds no lease that it does
// not know of, and can give back a lease that was granted late.
package resend

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Lease is what a client knows of its lease on a name. The zero Lease is none, and none requested.
// One goroutine at a time may use it.
//
// The rules rely on the order of requests: one whose answer is lost must not reach the store after
// the next one. If it does, the store holds a lease that nobody uses, until it expires.
type Lease struct {
	held   *lease.Claim // nil = none is known
	ending bool         // a release of it was sent in vain, and can still arrive

	// At most one of held and key is set.
	key  string // of the request whose outcome is unknown; "" = there is none
	lost bool   // the answer to an earlier sending of it
}

// A Store is what a Lease needs of a lease.Store.
type Store interface {
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
}

// Held returns the claim of the lease that the client has; nil if none is known.
func (l *Lease) Held() *lease.Claim { return l.held }

// Unknown reports whether the outcome of a request is unknown.
func (l *Lease) Unknown() bool { return l.key != "" }

// Request returns r with the key of the request whose outcome is unknown, or with a new one. Answered
// receives the answer. A lease that an earlier sending got can last for less than the TTL of r.
func (l *Lease) Request(r lease.AcquireRequest) lease.AcquireRequest {
	l.key = cmp.Or(l.key, rand.Text())
	r.IdempotencyKey = l.key
	return r
}

// Answered records the answer to the request.
func (l *Lease) Answered(got lease.Lease, err error) {
	switch {
	case err == nil:
		*l = Lease{held: &got.Claim}
	case errors.Is(err, lease.ErrHeld), !l.lost && lease.NothingDone(err): // ErrHeld: no sending has a lease
		*l = Lease{}
	default:
		l.lost = true
	}
}

// Renew renews the lease that the client has. If the error says that the lease is over, the client
// has none afterwards. A lease whose release got no answer is not renewed, because that release can
// still arrive: Renew releases it again, and says that it is over.
func (l *Lease) Renew(ctx context.Context, store Store, ttl time.Duration) (lease.Lease, error) {
	if l.ending {
		claim := *l.held
		return lease.Lease{}, cmp.Or(l.Release(ctx, store), error(&lease.StaleError{Name: claim.Name, ID: true}))
	}
	got, err := store.Renew(ctx, lease.RenewRequest{Claim: *l.held, TTL: ttl})
	l.over(err)
	return got, err
}

// Release gives back the lease that the client has, if any. If the error says that the lease is
// over, the client has none afterwards.
func (l *Lease) Release(ctx context.Context, store Store) error {
	if l.held == nil {
		return nil
	}
	err := store.Release(ctx, *l.held)
	l.ending = true
	if err == nil {
		l.Forget()
	}
	l.over(err)
	return err
}

// Forget forgets a lease that has ended.
func (l *Lease) Forget() { l.held, l.ending = nil, false }

func (l *Lease) over(err error) {
	if lease.IsOver(err) {
		l.Forget()
	}
}
