package lease

import (
	"context"
	"iter"
	"time"
)

// A Store keeps leases. Its methods are safe for concurrent use. Each call is one serializable
// transaction, except List and Sweep, which can be several.
//
//   - If a method returns without an error, its effect is as durable as the store promises.
//   - After an error of this package, nothing has changed.
//   - After any other error, the outcome is unknown.
//   - If a request is not valid, the method returns the *InvalidError that the request's Validate
//     returns.
type Store interface {
	// Acquire grants a lease on a name if nobody has one. This does not depend on a Sweep. It
	// returns *HeldError if somebody has a lease, or if a LockDelay or MinHold is not over.
	Acquire(ctx context.Context, r AcquireRequest) (Lease, error)
	// Renew prolongs a lease to TTL from now, or to the end of its MaxLifetime. It never shortens
	// the lease, and can change its metadata. It returns *StaleError if the claim is not the
	// current one, and *ExpiredError if it is, but the lease has expired. It returns
	// *NotFoundError if the store does not know the name.
	Renew(ctx context.Context, r RenewRequest) (Lease, error)
	// Release ends a lease. Releasing the last released lease again is not an error. Release
	// returns *StaleError if the claim is neither the current nor the last one, and *ExpiredError
	// if it is one of them, but the lease had already expired. It returns *NotFoundError if the
	// store does not know the name.
	Release(ctx context.Context, c Claim) error
	// Get returns the record of one name. It returns *NotFoundError if the store does not know the
	// name.
	Get(ctx context.Context, name string) (Record, error)
	// List yields the records of names in byte order, starting with the first after r.After. An
	// error ends the iteration. It is not a snapshot: a change during the iteration may or may
	// not be visible.
	List(ctx context.Context, r ListRequest) iter.Seq2[Record, error]
	// Sweep counts leases, sets names whose lease expired to FREE, and forgets names whose lease
	// ended long ago. Tokens and versions of these names keep rising nevertheless. Sweep may commit
	// in parts. If it returns any error, Expired and Removed count the work that is known to be
	// done. To keep the call short, it may stop before r.Limit: as long as More is set, sweep again
	// at once.
	Sweep(ctx context.Context, r SweepRequest) (SweepResult, error)
}

// A BatchRenewer renews many leases in one operation, each in the same way as Renew. The results
// are in the order of the requests. If it returns an error, there are no results.
type BatchRenewer interface {
	RenewAll(ctx context.Context, all []RenewRequest) ([]RenewResult, error)
}

// A HandOverer hands a name to a waiter in one operation instead of two: one commit, and the name
// is never free in between.
type HandOverer interface {
	// HandOver releases r and then acquires next, in one transaction. released is the error that
	// ReleaseKeyed would have returned, and acquired the error of Acquire. The acquire is tried in
	// either case, and if one of the two is refused, the other still takes effect. If the
	// transaction fails, released and acquired are both its error.
	HandOver(ctx context.Context, r ReleaseRequest, next AcquireRequest) (l Lease, released, acquired error)
}

// A KeyedReleaser remembers, for each name, the last release that had an idempotency key.
// So a release whose answer was lost can be sent again after another holder got the name,
// even by another process.
type KeyedReleaser interface {
	// ReleaseKeyed does the same as Release, with one exception. The store remembers the last release
	// that ended a lease of the name and had a key. If r is that release, ReleaseKeyed returns nil
	// instead of *StaleError, and changes nothing. Holder, ID, Token and key must all be the same. A
	// request without a key is never taken for that release.
	ReleaseKeyed(ctx context.Context, r ReleaseRequest) error
}

// A RenewResult is the outcome of one renewal of a batch.
type RenewResult struct {
	Lease Lease
	Err   error
}

// An AcquireRequest asks for a lease.
type AcquireRequest struct {
	Name   string        // see ValidateName
	Holder string        // 1 to MaxName bytes of valid UTF-8 without control characters
	TTL    time.Duration // MinTTL to MaxTTL

	// Metadata is kept with the lease, for people to read. Its keys and values have at most
	// MaxMetadata bytes of valid UTF-8, without control characters except tab and newline.
	Metadata map[string]string

	// IdempotencyKey makes it safe to send a request again when its answer was lost. While the
	// lease that the request got is current, a request with the same key, holder and name returns
	// that lease unchanged, instead of a second one. "" = none; at most MaxName bytes.
	IdempotencyKey string

	// If the lease expires without a release, nobody gets the name for LockDelay after that.
	// So writes that its holder has already sent have time to arrive. 0 = none; at most
	// MaxTTL.
	LockDelay time.Duration

	// Nobody gets the name again for MinHold after the acquisition, even if it is released
	// earlier. It is for jobs that take less time than the difference between the clocks that
	// start them. 0 = none; at most MaxTTL.
	MinHold time.Duration

	// MaxLifetime limits renewals: the lease ends at most this long after its
	// acquisition, however often it is renewed. 0 = no bound; else MinTTL to
	// LongestLifetime.
	MaxLifetime time.Duration
}

// A RenewRequest asks to prolong a lease.
type RenewRequest struct {
	Claim
	TTL time.Duration // MinTTL to MaxTTL, from now

	// Metadata replaces the lease's metadata, within the bounds of AcquireRequest.Metadata. nil
	// leaves it unchanged, and an empty map clears it. A refused renewal does not change it.
	Metadata map[string]string
}

// A ReleaseRequest asks to end a lease.
type ReleaseRequest struct {
	Claim

	// IdempotencyKey makes it safe to send a release again when its answer was lost: see
	// KeyedReleaser. The store keeps the key until another release with a key ends a lease of the
	// name, or a sweep forgets the name. "" = none; at most MaxName bytes.
	IdempotencyKey string
}

// A ListRequest selects names.
type ListRequest struct {
	After  string // "" = from the first; the name need not exist or be valid
	Prefix string // "" = all; it need not exist or be a valid name either
	Limit  int    // 0 = no limit
}

// A SweepRequest selects the names to forget.
type SweepRequest struct {
	// Retention is how long a name is kept after its lease ended, for Get, List and late releases.
	// 0 = one hour.
	Retention time.Duration
	Limit     int // maximum number of names that one sweep changes or forgets; 0 = 10,000
}

// A SweepResult has the counts of a sweep.
type SweepResult struct {
	Held    int // unexpired leases in the store
	Expired int // leases that expired without a release; each counts once, even if another client took over since
	Removed int // names forgotten

	// More reports that there may be more to do, because the sweep stopped at its limit, or
	// because it took too long. It is false if Sweep returns an error.
	More bool
}

// Limits of requests.
const (
	MaxName     = 512
	MaxMetadata = 4 << 10
	MinTTL      = 10 * time.Millisecond
	MaxTTL      = 24 * time.Hour

	// LongestLifetime is a hundred years. All stores and protocols can represent it.
	LongestLifetime = 100 * 365 * 24 * time.Hour

	DefaultRetention  = time.Hour
	DefaultSweepLimit = 10_000
)
