package leasehttp

import (
	"time"

	"github.com/pglatch/pglatch/lease"
)

// The names of JSON fields and query parameters that errors name.
const (
	fieldLock  = "lock"
	fieldOwner = "owner_id"
	fieldID    = "lease_id"
	fieldToken = "fencing_token"
)

// requestID is the header of a request that its answer has, too, so that a client knows
// its answer from another's. The server takes any value, and leaves one out that is long.
const (
	requestID    = "Pglatch-Request-Id"
	maxRequestID = 64 // bytes
)

// fields are the contract's names and those on the wire; numeric fields can be out
// of range.
var fields = [...]struct {
	contract, wire string
	numeric        bool
}{
	{"Name", fieldLock, false},
	{"Holder", fieldOwner, false},
	{"ID", fieldID, false},
	{"Token", fieldToken, true},
	{"TTL", "ttl_ms", true},
	{"Metadata", "metadata", false},
	{"IdempotencyKey", "idempotency_key", false},
	{"LockDelay", "lock_delay_ms", true},
	{"MinHold", "min_hold_ms", true},
	{"MaxLifetime", "max_lifetime_ms", true},
	{"After", "after", false},
	{"Prefix", "prefix", false},
	{"Limit", "limit", true},
	{"Wait", "wait", true},
}

func fieldName(contract string) string {
	for _, f := range fields {
		if f.contract == contract {
			return f.wire
		}
	}
	return contract
}

func contractName(wire string) string {
	for _, f := range fields {
		if f.wire == wire {
			return f.contract
		}
	}
	return wire
}

func numeric(contract string) bool {
	for _, f := range fields {
		if f.contract == contract {
			return f.numeric
		}
	}
	return false
}

// An acquireBody is the body of an acquire.
type acquireBody struct {
	OwnerID        string            `json:"owner_id"`
	TTLMS          int64             `json:"ttl_ms"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	LockDelayMS    int64             `json:"lock_delay_ms,omitempty"`
	MinHoldMS      int64             `json:"min_hold_ms,omitempty"`
	MaxLifetimeMS  int64             `json:"max_lifetime_ms,omitempty"`
}

func newAcquireBody(r lease.AcquireRequest) acquireBody {
	return acquireBody{
		OwnerID: r.Holder, TTLMS: r.TTL.Milliseconds(), Metadata: r.Metadata, IdempotencyKey: r.IdempotencyKey,
		LockDelayMS: ceilMS(r.LockDelay), MinHoldMS: ceilMS(r.MinHold), MaxLifetimeMS: r.MaxLifetime.Milliseconds(),
	}
}

func (b *acquireBody) request(name string) lease.AcquireRequest {
	return lease.AcquireRequest{
		Name: name, Holder: b.OwnerID, TTL: milliseconds(b.TTLMS), Metadata: b.Metadata, IdempotencyKey: b.IdempotencyKey,
		LockDelay: milliseconds(b.LockDelayMS), MinHold: milliseconds(b.MinHoldMS), MaxLifetime: milliseconds(b.MaxLifetimeMS),
	}
}

// A claimBody is the claim in the body of a release and a renewal.
type claimBody struct {
	OwnerID      string `json:"owner_id"`
	LeaseID      string `json:"lease_id"`
	FencingToken uint64 `json:"fencing_token"`
}

func newClaimBody(c lease.Claim) claimBody {
	return claimBody{OwnerID: c.Holder, LeaseID: c.ID, FencingToken: c.Token}
}

func (b *claimBody) claim(name string) lease.Claim {
	return lease.Claim{Name: name, Holder: b.OwnerID, ID: b.LeaseID, Token: b.FencingToken}
}

// A renewBody is the body of a renewal.
type renewBody struct {
	claimBody
	TTLMS int64 `json:"ttl_ms"`
}

// A releaseBody is the body of a release.
type releaseBody struct {
	claimBody
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// A leaseBody is the answer to an acquire and a renewal.
type leaseBody struct {
	Lock           string            `json:"lock"`
	OwnerID        string            `json:"owner_id"`
	LeaseID        string            `json:"lease_id,omitempty"` // not in a record for those who may not write
	FencingToken   uint64            `json:"fencing_token"`
	AcquiredAt     time.Time         `json:"acquired_at"`
	ExpiresAt      time.Time         `json:"expires_at"`
	TTLRemainingMS int64             `json:"ttl_remaining_ms"`
	WaitedMS       int64             `json:"waited_ms,omitempty"` // from the arrival of the request to the call that got the lease
	Metadata       map[string]string `json:"metadata,omitempty"`
}

func newLeaseBody(l lease.Lease) leaseBody {
	return leaseBody{
		Lock: l.Name, OwnerID: l.Holder, LeaseID: l.ID, FencingToken: l.Token,
		AcquiredAt: l.AcquiredAt.UTC(), ExpiresAt: l.ExpiresAt.UTC(), TTLRemainingMS: l.Remaining.Milliseconds(), Metadata: l.Metadata,
	}
}

func (b *leaseBody) lease() lease.Lease {
	return lease.Lease{
		Claim:      lease.Claim{Name: b.Lock, Holder: b.OwnerID, ID: b.LeaseID, Token: b.FencingToken},
		AcquiredAt: b.AcquiredAt, ExpiresAt: b.ExpiresAt, Remaining: milliseconds(b.TTLRemainingMS), Metadata: b.Metadata,
	}
}

// A releasedBody is the answer to a release.
type releasedBody struct {
	Lock string `json:"lock"`
	claimBody
}

// A recordBody is what is known of a lock.
type recordBody struct {
	leaseBody
	State         string `json:"state"`
	Version       uint64 `json:"version"`
	AvailableInMS int64  `json:"available_in_ms"`
}

func newRecordBody(r lease.Record) recordBody {
	return recordBody{leaseBody: newLeaseBody(r.Lease), State: r.State.String(), Version: r.Version, AvailableInMS: ceilMS(r.AvailableIn)}
}

func (b *recordBody) record() lease.Record {
	r := lease.Record{Lease: b.lease(), Version: b.Version, AvailableIn: milliseconds(b.AvailableInMS)}
	for _, s := range []lease.State{lease.Free, lease.Held, lease.Expired} {
		if s.String() == b.State {
			r.State = s
		}
	}
	return r
}

// A pageBody is a page of a list.
type pageBody struct {
	Locks []recordBody `json:"locks"`
	Next  string       `json:"next,omitempty"` // the "after" of the next page; "" = this is the last
}

// longest is what milliseconds makes of greater numbers: no field allows it.
const longest = 2 * lease.LongestLifetime

func milliseconds(n int64) time.Duration {
	return time.Duration(max(min(n, longest.Milliseconds()), -longest.Milliseconds())) * time.Millisecond
}

func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
