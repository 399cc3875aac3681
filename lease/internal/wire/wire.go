// Package wire has the parts that the client and the server of leases over HTTP share: the
// bodies of requests and answers, and the table of errors and problems.
package wire

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// The names of JSON fields and query parameters that errors name.
const (
	fieldLock  = "lock"
	fieldOwner = "owner_id"
	fieldID    = "lease_id"
	fieldToken = "fencing_token"
)

// RequestID is the header that an answer copies from its request, so that a client recognizes its
// own answer. The server copies any value, except one that is too long.
const (
	RequestID    = "Pglatch-Request-Id"
	MaxRequestID = 64 // bytes
)

// JSONType is the media type of bodies.
const JSONType = "application/json"

// MaxPage is how many locks a page of a list has at most.
const MaxPage = 1000

// fields maps the contract's names to those on the wire. Numeric fields can be out of range.
var fields = []field{
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
	{"Slots", "slots", true},
	{"Mode", "mode", false},
	{"Index", "index", true},
	{"Operations", "operations", true},
	{"Reason", "reason", false},
}

type field struct {
	contract, wire string
	numeric        bool
}

// fieldOf returns the field that has a name; the zero field if there is none.
func fieldOf(name string) field {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.contract == name || f.wire == name }); i >= 0 {
		return fields[i]
	}
	return field{}
}

func fieldName(contract string) string { return cmp.Or(fieldOf(contract).wire, contract) }

func contractName(wire string) string { return cmp.Or(fieldOf(wire).contract, wire) }

// An AcquireBody is the body of an acquire.
type AcquireBody struct {
	OwnerID        string            `json:"owner_id"`
	TTLMS          int64             `json:"ttl_ms"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	LockDelayMS    int64             `json:"lock_delay_ms,omitempty"`
	MinHoldMS      int64             `json:"min_hold_ms,omitempty"`
	MaxLifetimeMS  int64             `json:"max_lifetime_ms,omitempty"`

	// nil leaves the field out. A field that is present but empty is refused, because it does not
	// ask for an ordinary lease.
	Mode  *string `json:"mode,omitempty"` // see ModeShared; nil = that if there are slots, else an ordinary lease
	Slots *int    `json:"slots,omitempty"`
}

// NewAcquireBody returns the body of a client's acquire.
func NewAcquireBody(r lease.AcquireRequest) AcquireBody {
	return AcquireBody{
		OwnerID: r.Holder, TTLMS: r.TTL.Milliseconds(), Metadata: r.Metadata, IdempotencyKey: r.IdempotencyKey,
		LockDelayMS: CeilMS(r.LockDelay), MinHoldMS: CeilMS(r.MinHold), MaxLifetimeMS: r.MaxLifetime.Milliseconds(),
	}
}

// Request converts the body to the server's request, for a lock.
func (b *AcquireBody) Request(name string) lease.AcquireRequest {
	return lease.AcquireRequest{
		Name: name, Holder: b.OwnerID, TTL: Milliseconds(b.TTLMS), Metadata: b.Metadata, IdempotencyKey: b.IdempotencyKey,
		LockDelay: Milliseconds(b.LockDelayMS), MinHold: Milliseconds(b.MinHoldMS), MaxLifetime: Milliseconds(b.MaxLifetimeMS),
	}
}

// A ClaimBody is the claim in the body of a release and a renewal.
type ClaimBody struct {
	OwnerID      string `json:"owner_id"`
	LeaseID      string `json:"lease_id"`
	FencingToken uint64 `json:"fencing_token"`
}

// NewClaimBody leaves the name out, because it is in the path.
func NewClaimBody(c lease.Claim) ClaimBody {
	return ClaimBody{OwnerID: c.Holder, LeaseID: c.ID, FencingToken: c.Token}
}

// Claim returns the claim on a lock.
func (b *ClaimBody) Claim(name string) lease.Claim {
	return lease.Claim{Name: name, Holder: b.OwnerID, ID: b.LeaseID, Token: b.FencingToken}
}

// A RenewBody is the body of a renewal.
type RenewBody struct {
	ClaimBody
	TTLMS    int64             `json:"ttl_ms"`
	Metadata map[string]string `json:"metadata,omitzero"` // nil = unchanged
}

// An AdoptBody identifies the lease to adopt.
type AdoptBody struct {
	OwnerID string `json:"owner_id"`
	LeaseID string `json:"lease_id"`
}

// NewRenewBody returns the body of a client's renewal.
func NewRenewBody(r lease.RenewRequest) RenewBody {
	return RenewBody{ClaimBody: NewClaimBody(r.Claim), TTLMS: r.TTL.Milliseconds(), Metadata: r.Metadata}
}

// Request converts the body to the server's request, for a lock.
func (b *RenewBody) Request(name string) lease.RenewRequest {
	return lease.RenewRequest{Claim: b.Claim(name), TTL: Milliseconds(b.TTLMS), Metadata: b.Metadata}
}

// A ReleaseBody is the body of a release.
type ReleaseBody struct {
	ClaimBody
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// A LeaseBody is the answer to an acquire and a renewal.
type LeaseBody struct {
	Lock           string            `json:"lock"`
	OwnerID        string            `json:"owner_id"`
	LeaseID        string            `json:"lease_id,omitempty"` // omitted in records for clients without the right
	FencingToken   uint64            `json:"fencing_token"`
	AcquiredAt     time.Time         `json:"acquired_at"`
	ExpiresAt      time.Time         `json:"expires_at"`
	TTLRemainingMS int64             `json:"ttl_remaining_ms"`
	WaitedMS       int64             `json:"waited_ms,omitempty"` // from the arrival of the request to the call that got the lease
	Metadata       map[string]string `json:"metadata,omitempty"`

	ShareOf string `json:"share_of,omitempty"` // the lock of which this is a share, or the gate
	Slot    int    `json:"slot,omitempty"`     // absent: the whole lock, or the gate
	Fence   uint64 `json:"fence,omitempty"`    // in the answer to an acquire of a share
}

// NewLeaseBody returns the server's answer.
func NewLeaseBody(l lease.Lease) LeaseBody {
	lock, slot, _ := shared.ParseName(l.Name)
	return LeaseBody{
		ShareOf: lock, Slot: slot,
		Lock: l.Name, OwnerID: l.Holder, LeaseID: l.ID, FencingToken: l.Token,
		AcquiredAt: l.AcquiredAt.UTC(), ExpiresAt: l.ExpiresAt.UTC(), TTLRemainingMS: l.Remaining.Milliseconds(), Metadata: l.Metadata,
	}
}

// Lease converts the answer to the client's lease.
func (b *LeaseBody) Lease() lease.Lease {
	return lease.Lease{
		Claim:      lease.Claim{Name: b.Lock, Holder: b.OwnerID, ID: b.LeaseID, Token: b.FencingToken},
		AcquiredAt: b.AcquiredAt, ExpiresAt: b.ExpiresAt, Remaining: Milliseconds(b.TTLRemainingMS), Metadata: b.Metadata,
	}
}

// A ReleasedBody is the answer to a release.
type ReleasedBody struct {
	Lock string `json:"lock"`
	ClaimBody
}

// A RecordBody is the record of a lock.
type RecordBody struct {
	LeaseBody
	State         string `json:"state"`
	Version       uint64 `json:"version"`
	AvailableInMS int64  `json:"available_in_ms"`
	Waiters       *int   `json:"waiters,omitempty"` // nil = unknown
}

// NewRecordBody returns the server's answer.
func NewRecordBody(r lease.Record) RecordBody {
	return RecordBody{LeaseBody: NewLeaseBody(r.Lease), State: r.State.String(), Version: r.Version, AvailableInMS: CeilMS(r.AvailableIn), Waiters: r.Waiters}
}

// Record converts the answer to the client's record.
func (b *RecordBody) Record() lease.Record {
	r := lease.Record{Lease: b.Lease(), Version: b.Version, AvailableIn: Milliseconds(b.AvailableInMS), Waiters: b.Waiters}
	for _, s := range []lease.State{lease.Free, lease.Held, lease.Expired} {
		if s.String() == b.State {
			r.State = s
		}
	}
	return r
}

// A PageBody is a page of a list.
type PageBody struct {
	Locks []RecordBody `json:"locks"`
	Next  string       `json:"next,omitempty"` // the "after" of the next page; "" = this is the last
}

// longest is the result of Milliseconds for greater numbers. No field allows it.
const longest = 2 * lease.LongestLifetime

// Milliseconds returns n milliseconds, capped at a value that no field allows.
func Milliseconds(n int64) time.Duration {
	return time.Duration(max(min(n, longest.Milliseconds()), -longest.Milliseconds())) * time.Millisecond
}

// CeilMS returns d in milliseconds, rounded up.
func CeilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
