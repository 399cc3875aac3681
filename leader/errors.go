package leader

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// The errors of an Elector, for errors.Is.
var (
	ErrNotLeader     = driver.ErrNotLeader
	ErrLost          = driver.ErrLost
	ErrReleased      = driver.ErrReleased
	ErrConnection    = driver.ErrConnection // the text of a matching error names the cause
	ErrPermanent     = driver.ErrPermanent
	ErrDrainExceeded = errors.New("work did not end within DrainTimeout")
	ErrGaveUp        = errors.New("election given up")
	ErrPanic         = errors.New("panic in a callback")
)

// A LostError is the cause of a leader's context that ended because leadership was lost.
type LostError struct {
	Election string
	Term     Term
	Held     time.Duration // how long leadership lasted
	Cause    error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("leader: leadership of %s (term %v) lost after %v: %v", e.Election, e.Term, e.Held.Round(time.Millisecond), e.Cause)
}

// Unwrap returns ErrLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Cause} }

// A ConfigError names a field of a Config, or of a backend's config, with its value and the remedy.
type ConfigError = driver.ConfigError
