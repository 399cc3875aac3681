package once

import (
	"context"
	"fmt"
	"time"
)

// A State is the state of a tick.
type State uint8

// The states of a tick.
const (
	Open    State = iota // no node has run it, or its node died or gave it back
	Running              // a node runs it
	Ran                  // a node has run it, without an error
	Failed               // a node has run it, with an error, and it is not to be run again
)

var stateNames = [...]string{"OPEN", "RUNNING", "RAN", "FAILED"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// A Record is what a store knows about a tick. Its times are from the store's clock.
type Record struct {
	Job   string
	Tick  time.Time // UTC
	State State

	// Node is the node that runs the tick or ran it last. It is "" if none did, or if the node's
	// transaction is not committed yet.
	Node  string
	Token uint64    // of that run
	Began time.Time // that run
	Ended time.Time // that run; zero unless Ran or Failed, and in the result of the run's own Do or End
}

// A Claim is the right to run a tick, for a limited time.
type Claim struct {
	Job  string
	Tick time.Time // UTC
	Node string
	ID   string // random, new for each claim

	// Token is greater than that of each earlier claim of the same tick. To fence writes of several
	// ticks of a job, compare the tick first: (tick, token).
	Token uint64

	Began     time.Time     // by the store's clock
	Remaining time.Duration // until other nodes may have the tick, as of the store's answer, unless it is renewed
}

// A Request asks for a claim. A Runner fills it.
type Request struct {
	Job    string        // see ValidateJob
	Tick   time.Time     // UTC, whole microseconds
	Node   string        // 1 to 200 bytes of UTF-8 without control characters
	TTL    time.Duration // MinTTL to MaxTTL, whole milliseconds
	Window time.Duration // an older tick, by the store's clock, is refused; at most what the store Keeps
	Early  time.Duration // a tick further ahead than this is refused, too; at most MaxEarly
}

// A Store keeps claims. Its methods are safe for concurrent use. After an error of this package
// nothing has changed. After any other error the outcome is unknown.
type Store interface {
	// Keeps returns how long after a tick the store knows how its run ended. It is the longest
	// Window.
	Keeps() time.Duration
	// Claim gives an Open tick to the node, for r.TTL unless it is renewed. It returns *TakenError
	// if the tick is known to be in another state, otherwise *WindowError if the tick is outside
	// the window.
	Claim(ctx context.Context, r Request) (Claim, error)
	// Renew prolongs a claim to ttl from now, and returns the remaining time. It returns *LostError
	// if the claim has ended.
	Renew(ctx context.Context, c Claim, ttl time.Duration) (time.Duration, error)
	// End records how the run of a claim ended: Ran or Failed, or Open to give the tick back. Only
	// the claim's node can do that, until the claim has expired and another node has claimed the
	// tick. After that, End returns *LostError. Ending a claim again in the same way is not an
	// error.
	End(ctx context.Context, c Claim, s State) error
	// Look returns the records of a job's ticks between from and to, both included, in order.
	// Unknown ticks, and ticks that are Open, may be missing.
	Look(ctx context.Context, job string, from, to time.Time) ([]Record, error)
}
