package lease

import (
	"fmt"
	"time"
)

// A Lease is the right to work on what its name stands for, until it expires.
type Lease struct {
	Claim
	AcquiredAt time.Time // by the store's clock
	ExpiresAt  time.Time // by the store's clock; at this moment it has expired

	// Remaining was left when the store answered, 0 if nothing was. It can be less than the
	// TTL that was asked for: near the end of a MaxLifetime, and for an Acquire that got
	// its lease again by an idempotency key. Trust goes by it.
	Remaining time.Duration

	Metadata map[string]string
}

// A Claim proves a lease: an operation on it must match all four.
type Claim struct {
	Name   string // of the lock; see ValidateName
	Holder string // who asked for it
	ID     string // random, new for each acquisition
	Token  uint64 // fencing token: greater than that of every lease of the name before; at most MaxToken
}

// MaxToken fits a PostgreSQL bigint, a SQLite INTEGER and, in JSON, most readers.
const MaxToken = 1<<63 - 1

// A State is what can be said of a name.
type State uint8

// The states of a name.
const (
	Free    State = iota // nobody has a lease; LockDelay or MinHold may still keep it from being granted
	Held                 // somebody has
	Expired              // somebody had, and did not release it; FREE after the next Sweep
)

var stateNames = [...]string{"FREE", "HELD", "EXPIRED"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// A Record is what a store knows of a name. Its Lease is the current or the last
// one.
type Record struct {
	Lease                     // Remaining is 0 unless Held
	State       State         // now
	Version     uint64        // rises with every change of the name, also over a Sweep that forgot it
	AvailableIn time.Duration // until the name can be granted, if nothing is renewed or released; 0 = now

	// LockDelay and MinHold are those of the request that got the lease. A lock server does not tell
	// them: leasehttp.Client leaves them 0.
	LockDelay, MinHold time.Duration
}
