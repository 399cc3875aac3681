package lease

import (
	"context"
	"iter"
	"time"
)

// A Store keeps leases. Its methods are safe for concurrent use, and each is one
// serializable transaction, but for List and Sweep, which can be several: when it
// returns without an error, its effect is as durable as the store promises. After an
// error of this package nothing has changed; after another the outcome is unknown. A
// request that its Validate refuses gets that *InvalidError.
type Store interface {
	// Acquire grants a lease on a name that nobody has a lease on. It needs no Sweep to
	// have run. *HeldError if somebody has one, or a delay keeps the name.
	Acquire(ctx context.Context, r AcquireRequest) (Lease, error)
	// Renew prolongs a lease to TTL from now, or to the end of its MaxLifetime; it never
	// shortens it, and can change its metadata. *StaleError if the claim is not the current one, *ExpiredError if it
	// is and its time was over, *NotFoundError if the store knows nothing of the name.
	Renew(ctx context.Context, r RenewRequest) (Lease, error)
	// Release ends a lease. Releasing once more what was released last is no error.
	// *StaleError if the claim is not the current or last one, *ExpiredError if it is
	// and its time was over before, *NotFoundError if the store knows nothing of the name.
	Release(ctx context.Context, c Claim) error
	// Get returns what is known of one name. *NotFoundError if the store knows nothing of it.
	Get(ctx context.Context, name string) (Record, error)
	// List yields the records of names in the order of their bytes, from the first after
	// r.After. An error ends it. It is no snapshot: what changes meanwhile may show before
	// or after.
	List(ctx context.Context, r ListRequest) iter.Seq2[Record, error]
	// Sweep counts leases, makes names FREE whose lease expired, and forgets those whose
	// lease ended long ago. Tokens and versions go on rising all the same. It may commit in
	// parts: beside an error, whichever it is, the result counts as Expired and Removed
	// what is known to be done. It may stop before r.Limit, so that it does not take long: as
	// long as More is set, sweep again at once.
	Sweep(ctx context.Context, r SweepRequest) (SweepResult, error)
}

// A BatchRenewer renews many leases in one operation, each as Renew does. The
// results are in the order of the requests; the error means that there are none.
type BatchRenewer interface {
	RenewAll(ctx context.Context, all []RenewRequest) ([]RenewResult, error)
}

// A HandOverer gives a name to who waits for it at once, in one operation instead of
// two: one commit, and no moment in which the name is free.
type HandOverer interface {
	// HandOver is Release of c and then Acquire of next, in one transaction. released is
	// what Release would have returned, acquired what Acquire would have, which is tried
	// in either case: what a refusal of the one leaves the other is done. If the
	// transaction fails, both are its error.
	HandOver(ctx context.Context, c Claim, next AcquireRequest) (l Lease, released, acquired error)
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

	// Metadata is kept with the lease, for people: at most MaxMetadata bytes
	// of keys and values, valid UTF-8, without control characters but tab and newline.
	Metadata map[string]string

	// IdempotencyKey lets a request be sent again when its answer was lost: as long as
	// the lease that it got is current, the same key, holder and name get it again, as it
	// is, and no second one. "" = none; at most MaxName bytes.
	IdempotencyKey string

	// LockDelay keeps the name from everybody for this long after the lease expired
	// without a release, so that what its holder sent before has arrived. 0 = none; at
	// most MaxTTL.
	LockDelay time.Duration

	// MinHold keeps the name from everybody for this long after the acquisition, also
	// after a release: for jobs that are shorter than the difference of the clocks
	// that start them. 0 = none; at most MaxTTL.
	MinHold time.Duration

	// MaxLifetime bounds all renewals: the lease ends this long after its acquisition,
	// whoever still renews it. 0 = no bound; else MinTTL to LongestLifetime.
	MaxLifetime time.Duration
}

// A RenewRequest asks for more time.
type RenewRequest struct {
	Claim
	TTL time.Duration // MinTTL to MaxTTL, from now

	// Metadata takes the place of the lease's, as AcquireRequest.Metadata; nil leaves it as it
	// is, and an empty map empties it. A renewal that is refused changes nothing of it.
	Metadata map[string]string
}

// A ListRequest selects names.
type ListRequest struct {
	After  string // "" = from the first; it need not exist, or be a name
	Prefix string // "" = all; nor need this
	Limit  int    // 0 = no limit
}

// A SweepRequest says what to forget.
type SweepRequest struct {
	// Retention is how long a name is kept after its lease ended, for Get, List and late
	// releases. 0 = one hour.
	Retention time.Duration
	Limit     int // of names changed or forgotten in one sweep; 0 = 10,000
}

// A SweepResult counts.
type SweepResult struct {
	Held    int // unexpired leases in the store
	Expired int // leases that expired without a release, each counted once, also if another took over since
	Removed int // names forgotten

	// More reports that there may be more to do: the sweep stopped because of its limit, or
	// of the time that it took. Unset beside an error.
	More bool
}

// Limits of requests.
const (
	MaxName     = 512
	MaxMetadata = 4 << 10
	MinTTL      = 10 * time.Millisecond
	MaxTTL      = 24 * time.Hour

	// LongestLifetime is a hundred years, which all stores and protocols can count.
	LongestLifetime = 100 * 365 * 24 * time.Hour

	DefaultRetention  = time.Hour
	DefaultSweepLimit = 10_000
)
