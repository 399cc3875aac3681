// Package rules decides about leases: from the stored row of a name and the time, it computes an
// operation's answer and the new row. It is pure, for stores that run Go inside their transaction.
// A store that decides in SQL follows the same rules, and leasetest compares the results.
package rules

import (
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Row is the stored state of a name. The zero Row stands for an unknown name. All times are the
// store's.
type Row struct {
	lease.Claim                      // of the current or last lease; Token 0 = there is none
	IdempotencyKey string            // of the acquire
	Metadata       map[string]string // never changed in place
	AcquiredAt     time.Time
	ExpiresAt      time.Time
	ReleasedAt     time.Time     // zero = not released
	LockDelay      time.Duration // after ExpiresAt, if not released
	MinHold        time.Duration // after AcquiredAt, also if released
	MaxLifetime    time.Duration // after AcquiredAt; 0 = no bound
	Cleared        bool          // a sweep has found it expired and counted it
	Uncounted      int           // earlier leases of the name that expired and that no sweep has counted
	LastRelease    string        // the ReleaseProof of the last release with a key, perhaps of an earlier lease; "" = there was none
	Version        uint64        // never less than Token; written back only if it rose or Uncounted changed
}

// known reports whether anything is stored.
func (r Row) known() bool { return r.Token != 0 }

// expired reports whether the lease ended without a release.
func (r Row) expired(now time.Time) bool {
	return r.known() && r.ReleasedAt.IsZero() && !now.Before(r.ExpiresAt)
}

// State returns the state of the name.
func (r Row) State(now time.Time) lease.State {
	switch {
	case !r.known(), !r.ReleasedAt.IsZero():
		return lease.Free
	case now.Before(r.ExpiresAt):
		return lease.Held
	case r.Cleared:
		return lease.Free
	default:
		return lease.Expired
	}
}

// AvailableAt returns when the name can be granted, unless the lease is renewed or released. The
// zero Row is available.
func (r Row) AvailableAt() time.Time {
	if !r.known() {
		return time.Time{}
	}
	held := r.AcquiredAt.Add(r.MinHold)
	if !r.ReleasedAt.IsZero() {
		return held
	}
	if delayed := r.ExpiresAt.Add(r.LockDelay); delayed.After(held) {
		return delayed
	}
	return held
}

// EndedAt returns when the lease ended, or will end if it is not renewed or released.
func (r Row) EndedAt() time.Time {
	if !r.ReleasedAt.IsZero() {
		return r.ReleasedAt
	}
	return r.ExpiresAt
}

// Lease returns the current or last lease of the name.
func (r Row) Lease(now time.Time) lease.Lease {
	l := lease.Lease{Claim: r.Claim, AcquiredAt: r.AcquiredAt, ExpiresAt: r.ExpiresAt, Metadata: r.Metadata}
	if r.State(now) == lease.Held {
		l.Remaining = r.ExpiresAt.Sub(now)
	}
	return l
}

// Record returns the record of the name, for Get. For the zero Row, the caller must return
// *lease.NotFoundError, because only the caller knows the name.
func (r Row) Record(now time.Time) lease.Record {
	return lease.Record{
		Lease:       r.Lease(now),
		State:       r.State(now),
		Version:     r.Version,
		AvailableIn: max(r.AvailableAt().Sub(now), 0),
		LockDelay:   r.LockDelay, MinHold: r.MinHold,
	}
}
