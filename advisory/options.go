package advisory

import (
	"time"
)

// Options change some calls of a Locker, see Locker.With, or one of LockTx and its
// kin, where Label says nothing.
type Options struct {
	// Wait bounds the wait for the lock, and nothing else. 0 = the Locker's
	// Timeout (15 s for LockTx); NoTimeout = until the context ends; negative is an error of the call.
	Wait time.Duration

	// Shared takes the lock in shared mode: it excludes exclusive holders only.
	Shared bool

	// Label says what the lock is for, in Held and to the Tracer. "" = nothing.
	Label string
}
