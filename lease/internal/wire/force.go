package wire

import (
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// DelayHolder is the holder of the lease that keeps a lock from everybody for the LockDelay of a
// lease that was ended by force. It ends by expiry, or by force if its token is named.
const DelayHolder = "pglatch: delay after a forced release"

// A ForceReleaseBody is the body of a release by force.
type ForceReleaseBody struct {
	Reason       string `json:"reason"`
	LeaseID      string `json:"lease_id,omitempty"`      // "" = the current lease
	FencingToken uint64 `json:"fencing_token,omitempty"` // 0 = the same
}

// A ForceReleasedBody is the answer to it: the lease that was ended, without its id.
type ForceReleasedBody struct {
	LeaseBody
	LockDelayMS int64 `json:"lock_delay_ms"`
}

// ForceReleasable returns the error for a forced release that names no lease, if r has no lease to
// end.
func ForceReleasable(r lease.Record) error {
	switch {
	case r.State == lease.Free:
		return &lease.StaleError{Name: r.Name, Released: true}
	case r.State == lease.Expired:
		return &lease.ExpiredError{Name: r.Name, At: r.ExpiresAt}
	case r.Holder == DelayHolder:
		return &lease.HeldError{Name: r.Name, Holder: r.Holder, Remaining: r.Remaining, Retry: rules.Retry(r.Remaining)}
	}
	return nil
}
