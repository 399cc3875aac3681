package lease

import "time"

// A Lease is the right to work on what its name stands for, until it expires.
type Lease struct {
	Claim
	AcquiredAt time.Time // by the store's clock
	ExpiresAt  time.Time // by the store's clock; at this moment it has expired
	Metadata   map[string]string
}

// A Claim proves a lease: an operation on it must match all four.
type Claim struct {
	Name   string // of the lock
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
	Expired              // somebody had, and did not release it
)

var stateNames = [...]string{"FREE", "HELD", "EXPIRED"}

func (s State) String() string { return stateNames[s] }

// A Record is what a store knows of a name. Its Lease is the current or the last
// one.
type Record struct {
	Lease
	State       State
	Version     uint64        // rises with every change of the name
	Remaining   time.Duration // until the lease expires; 0 unless Held
	AvailableIn time.Duration // until the name can be granted; 0 = now
}
