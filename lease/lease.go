package lease

import (
	"fmt"
	"time"
)

// A Lease is the exclusive right to work on whatever its name stands for, until it expires.
type Lease struct {
	Claim
	AcquiredAt time.Time // by the store's clock
	ExpiresAt  time.Time // by the store's clock; at this moment it has expired

	// Remaining is the time that was left when the store answered; 0 if there was none. It can be
	// less than the requested TTL in two cases: near the end of a MaxLifetime, and if an Acquire
	// returned an existing lease because of its idempotency key. Trust uses it.
	Remaining time.Duration

	Metadata map[string]string
}

// A Claim identifies a lease and proves who holds it: an operation on the lease must match all four
// fields.
type Claim struct {
	Name   string // of the lock; see ValidateName
	Holder string // the client that requested it
	ID     string // random, new for each acquisition
	Token  uint64 // fencing token: greater than those of all earlier leases of the name; at most MaxToken
}

// MaxToken is the greatest token. It fits a PostgreSQL bigint and a SQLite INTEGER, and most JSON
// parsers can read it.
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

// A Record is everything a store knows about a name. Its Lease is the current or the last lease of
// the name.
type Record struct {
	Lease                     // Remaining is 0 unless Held
	State       State         // now
	Version     uint64        // rises with every change of the name, even if a Sweep forgot the name in between
	AvailableIn time.Duration // until the name can be granted, if nothing is renewed or released; 0 = now

	// LockDelay and MinHold are the values from the request that got the lease. A lock server
	// does not report them, so they are 0 in records of leasehttp.Client.
	LockDelay, MinHold time.Duration

	// Waiters is how many requests wait for the lock at a lock server; nil = unknown. Only records
	// of leasehttp.Client have it: a store does not know its waiters.
	Waiters *int
}
