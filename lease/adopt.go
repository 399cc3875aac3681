package lease

import (
	"context"
	"fmt"
)

// Adopt returns the lease that holder got with id, including its token. With it, a restarted
// process takes over the lease of the process before it. The id is the proof: only the holder knows
// it, so keep it where nobody else can read it. Adopt changes nothing and does not prolong the
// lease: renew it next. As with any Lease, Trust computes with its Remaining. The caller must know
// that the previous process has ended, because both would have the same token.
//
// Adopt returns *StaleError if another lease is the current or last one, or if this one was
// released. It returns *ExpiredError if it is the last one and its time is over, and *NotFoundError
// if the store does not know the name.
func Adopt(ctx context.Context, s Store, name, holder, id string) (Lease, error) {
	if err := (Claim{Name: name, Holder: holder, ID: id, Token: 1}).Validate(); err != nil {
		return Lease{}, err
	}
	r, err := s.Get(ctx, name)
	switch {
	case err != nil:
		return Lease{}, err
	case r.Holder != holder || r.ID != id:
		return Lease{}, &StaleError{Name: name, Holder: r.Holder != holder, ID: r.ID != id}
	case r.State == Held:
		return r.Lease, nil
	}
	// A lease that has ended is never renewed; the refusal says how it ended.
	if _, err = s.Renew(ctx, RenewRequest{Claim: r.Claim, TTL: MinTTL}); err == nil {
		err = fmt.Errorf("lease: BUG: the lease on %s had ended, and was renewed", name)
	}
	return Lease{}, err
}
