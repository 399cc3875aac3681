package lease

import (
	"fmt"
	"time"
)

// A Lease is the exclusive right to work on the thing its name stands for, until it expires.
type Lease struct {
	Claim
	AcquiredAt time.Time // by the store's clock
	ExpiresAt  time.Time // by the store's clock; at this moment it has expired

	// Remaining is the time that was left when the store answered; 0 if none was. It can be less
	// than the requested TTL: near the end of a MaxLifetime, and if an Acquire got its lease again
	// by an idempotency key. Trust computes with it.
	Remaining time.Duration

	Metadata map[string]string
}

// A Claim identifies and proves a lease: an operation on the lease must match all four fields.
type Claim struct {
	Name   string // of the lock; see ValidateName
	Holder string // the client that asked for it
	ID     string // random, new for each acquisition
	Token  uint64 // fencing token: greater than that of every lease of the name before; at most MaxToken
}

// MaxToken is the greatest token. It fits a PostgreSQL bigint, a SQLite INTEGER and, in JSON, most
// readers.
const MaxToken = 1<<63 - 1

// A State says whether a name has a lease.
type State uint8

// The states of a name.
const (
	Free    State = iota // nobody has a lease; LockDelay or MinHold may still keep it from being granted
	Held                 // somebody has a lease
	Expired              // somebody had a lease and did not release it; FREE after the next Sweep
)

var stateNames = [...]string{"FREE", "HELD", "EXPIRED"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// A Record is everything a store knows about a name. Its Lease is the current one or the last one.
type Record struct {
	Lease                     // Remaining is 0 unless Held
	State       State         // now
	Version     uint64        // rises with every change of the name, also over a Sweep that forgot it
	AvailableIn time.Duration // until the name can be granted, if nothing is renewed or released; 0 = now

	// LockDelay and MinHold are those of the request that got the lease. A lock server does not
	// report them, so leasehttp.Client leaves them 0.
	LockDelay, MinHold time.Duration
}
