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
//   - If a request's Validate refuses it, the method returns that *InvalidError.
type Store interface {
	// Acquire grants a lease on a name that nobody has a lease on. No Sweep needs to have run. It
	// returns *HeldError if somebody has a lease, or a delay keeps the name.
	Acquire(ctx context.Context, r AcquireRequest) (Lease, error)
	// Renew prolongs a lease to TTL from now, or to the end of its MaxLifetime. It never shortens
	// the lease, and can change its metadata. It returns *StaleError if the claim is not the
	// current one, and *ExpiredError if it is but its time was over. It returns *NotFoundError if
	// the store does not know the name.
	Renew(ctx context.Context, r RenewRequest) (Lease, error)
	// Release ends a lease. To release the last released lease again is no error. It returns
	// *StaleError if the claim is neither the current nor the last one, and *ExpiredError if it is
	// one of them but its time was already over. It returns *NotFoundError if the store does not
	// know the name.
	Release(ctx context.Context, c Claim) error
	// Get returns the record of one name. It returns *NotFoundError if the store does not know the
	// name.
	Get(ctx context.Context, name string) (Record, error)
	// List yields the records of names in byte order, starting with the first after r.After. An
	// error ends it. It is not a snapshot: a change during the iteration may show or not.
	List(ctx context.Context, r ListRequest) iter.Seq2[Record, error]
	// Sweep counts leases, makes names FREE whose lease expired, and forgets names whose lease
	// ended long ago. Tokens and versions keep rising all the same. Sweep may commit in parts. If
	// it returns an error of any kind, Expired and Removed count the work that is known to be done.
	// To stay short, it may stop before r.Limit: as long as More is set, sweep again at once.
	Sweep(ctx context.Context, r SweepRequest) (SweepResult, error)
}

// A BatchRenewer renews many leases in one operation, each as Renew does. The results are in the
// order of the requests. If it returns an error, there are no results.
type BatchRenewer interface {
	RenewAll(ctx context.Context, all []RenewRequest) ([]RenewResult, error)
}

// A HandOverer hands a name to a waiter in one operation instead of two: one commit, and the name
// is never free in between.
type HandOverer interface {
	// HandOver releases r and then acquires next, in one transaction. released is the error that
	// ReleaseKeyed would have returned, and acquired the error of Acquire. The acquire is tried in
	// either case, and if one of the two is refused, the other still takes effect. If the
	// transaction fails, both are its error.
	HandOver(ctx context.Context, r ReleaseRequest, next AcquireRequest) (l Lease, released, acquired error)
}

// A KeyedReleaser keeps the last release of each name that had an idempotency key, with
// the name. So a release whose answer was lost can be sent again after another holder got
// the name, also by another process.
type KeyedReleaser interface {
	// ReleaseKeyed does the same as Release, with one exception. Of the releases that ended a lease of
	// the name and had a key, the store keeps the last one. If r is that one, ReleaseKeyed returns nil
	// instead of *StaleError, and changes nothing. Holder, ID, Token and key must all be the same. A
	// request without a key is never that one.
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

	// IdempotencyKey makes it safe to send a request again when its answer was lost. As long as the
	// lease it got is current, the same key, holder and name return that lease unchanged, and no
	// second one. "" = none; at most MaxName bytes.
	IdempotencyKey string

	// LockDelay keeps the name from everybody for this long after the lease expired without a
	// release, so that writes its holder already sent can arrive. 0 = none; at most MaxTTL.
	LockDelay time.Duration

	// MinHold keeps the name from everybody for this long after the acquisition, even after a
	// release. It is for jobs that are shorter than the difference between the clocks that start
	// them. 0 = none; at most MaxTTL.
	MinHold time.Duration

	// MaxLifetime bounds all renewals: the lease ends this long after its acquisition,
	// even if it is renewed. 0 = no bound; else MinTTL to LongestLifetime.
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
	// KeyedReleaser. The next release of the name that ends a lease and has a key replaces it, and a
	// sweep that forgets the name forgets the key. "" = none; at most MaxName bytes.
	IdempotencyKey string
}

// A ListRequest selects names.
type ListRequest struct {
	After  string // "" = from the first; the name need not exist or be valid
	Prefix string // "" = all; it need not exist or be a valid name either
	Limit  int    // 0 = no limit
}

// A SweepRequest says which names to forget.
type SweepRequest struct {
	// Retention is how long a name is kept after its lease ended, for Get, List and late releases.
	// 0 = one hour.
	Retention time.Duration
	Limit     int // of names changed or forgotten in one sweep; 0 = 10,000
}

// A SweepResult has the counts of a sweep.
type SweepResult struct {
	Held    int // unexpired leases in the store
	Expired int // leases that expired without a release; each counts once, even if another client took over since
	Removed int // names forgotten

	// More reports that there may be more to do: the sweep stopped because of its limit or because
	// of the time it took. It is unset if Sweep returns an error.
	More bool
}

// Limits of requests.
const (
	MaxName     = 512
	MaxMetadata = 4 << 10
	MinTTL      = 10 * time.Millisecond
	MaxTTL      = 24 * time.Hour

	// LongestLifetime is a hundred years; all stores and protocols can count that.
	LongestLifetime = 100 * 365 * 24 * time.Hour

	DefaultRetention  = time.Hour
	DefaultSweepLimit = 10_000
)
