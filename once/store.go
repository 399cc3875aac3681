package once

import (
	"context"
	"fmt"
	"time"
)

// A State is what has become of a tick.
type State uint8

// The states of a tick.
const (
	Open    State = iota // nobody has run it, or whoever did died or gave it back
	Running              // somebody runs it
	Ran                  // somebody has run it, without an error
	Failed               // somebody has run it, with an error, and it is not to be run again
)

var stateNames = [...]string{"OPEN", "RUNNING", "RAN", "FAILED"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s]
}

// A Record is what a store knows of a tick. Its times are the store's.
type Record struct {
	Job   string
	Tick  time.Time // UTC
	State State

	// Node is who runs it or ran it last. "" if nobody did, or in a transaction that is not committed yet.
	Node  string
	Token uint64    // of that run
	Began time.Time // that run
	Ended time.Time // that run; zero unless Ran or Failed, and in what the run's own Do or End returns
}

// A Claim is the right to run a tick, for a time.
type Claim struct {
	Job  string
	Tick time.Time // UTC
	Node string
	ID   string // random, new for each claim

	// Token is greater than that of each earlier claim of the same tick. To fence writes of several
	// ticks of a job, compare the tick first: (tick, token).
	Token uint64

	Began     time.Time     // by the store's clock
	Remaining time.Duration // until others may have the tick, when the store answered, unless it is renewed
}

// A Request asks for a claim. A Runner fills it.
type Request struct {
	Job    string        // see ValidateJob
	Tick   time.Time     // UTC, whole microseconds
	Node   string        // 1 to 200 bytes of UTF-8 without control characters
	TTL    time.Duration // MinTTL to MaxTTL, whole milliseconds
	Window time.Duration // a tick that is older, by the store's clock, is refused; at most what the store Keeps
	Early  time.Duration // so is one that is to come later than this; at most MaxEarly
}

// A Store keeps claims. Its methods are safe for concurrent use. After an error of this package
// nothing has changed; after another the outcome is unknown.
type Store interface {
	// Keeps is how long the end of a run is known after its tick: the longest Window.
	Keeps() time.Duration
	// Claim gives an Open tick to the node, for r.TTL unless it is renewed. *TakenError if the tick is
	// in another state, as far as that is known; else *WindowError if it is out of the window.
	Claim(ctx context.Context, r Request) (Claim, error)
	// Renew prolongs a claim to ttl from now, and returns what remains. *LostError if it has ended.
	Renew(ctx context.Context, c Claim, ttl time.Duration) (time.Duration, error)
	// End notes how the run of a claim ended: Ran or Failed, or Open to give the tick back. Nobody but
	// the claim's node can do that as long as it has not expired, and after that until another has
	// claimed the tick: *LostError then. To end once more what has ended the same way is no error.
	End(ctx context.Context, c Claim, s State) error
	// Look returns what is known of the ticks of a job from one to another, both included, in their order. Ticks of
	// which nothing is known, and that are Open, may be missing.
	Look(ctx context.Context, job string, from, to time.Time) ([]Record, error)
}
