package shards

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader"
)

// ErrGaveAway is why a shard was released whose work failed as often as Config.Restart allows.
var ErrGaveAway = errors.New("its work failed too often")

// ErrIdentity is reported if another node has the identity of this one, or a process that hangs and had it
// before. No shard has two owners for that, but they do not even out, and what people say to one is for both.
var ErrIdentity = errors.New("another node has the same identity")

// A LostError is the cause with which the context of a shard's work ends when the shard is lost.
// That of one which is given up ends with leader.ErrReleased.
type LostError struct {
	Group string
	Shard Shard
	Held  time.Duration // how long it was owned
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("shards: %s of %s (term %v) lost after %v: %v", e.Shard.Name, e.Group, e.Shard.Term, e.Held.Round(time.Millisecond), e.Cause)
}

// Is reports whether target is leader.ErrLost.
func (e *LostError) Is(target error) bool { return target == leader.ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// errExpired is the cause of a loss that no backend reported.
var errExpired = errors.New("no renewal succeeded in time")
