package lease

import (
	"context"
	"fmt"
)

// Adopt returns the lease with this ID that holder has, including its token. With it, a restarted
// process can take over the lease of its previous process. The id is the proof: only the holder
// knows it, so keep it where nobody else can read it. Adopt changes nothing and does not prolong
// the lease: renew it next. Trust works with it as with any Lease. The caller must know that the
// previous process has ended, because both would have the same token.
//
// Adopt returns *StaleError if the current or last lease of the name is a different one, or if
// this lease was released. It returns *ExpiredError if this lease is the last one and has
// expired, and *NotFoundError if the store does not know the name.
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
