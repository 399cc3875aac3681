package lease

import (
	"context"
	"fmt"
)

// Adopt returns the lease that holder got with id, with its token, so that a process that
// was started again takes up what the one before it held. id is the proof: only the holder
// knows it, so keep it where nobody else reads. Nothing changes, and the lease is not
// prolonged: renew it next. As of any Lease, Trust goes by what remains, and that the
// process before has ended is the caller's to know: both would have the same token.
//
// *StaleError if another lease is the current or last one, or that one was released,
// *ExpiredError if it is the last one and its time is over, *NotFoundError if the store knows
// nothing of the name.
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
	// A lease that has ended is never renewed: the refusal says how it ended.
	if _, err = s.Renew(ctx, RenewRequest{Claim: r.Claim, TTL: MinTTL}); err == nil {
		err = fmt.Errorf("lease: BUG: the lease on %s had ended, and was renewed", name)
	}
	return Lease{}, err
}
