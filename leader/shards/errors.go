package shards

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader"
)

// ErrGaveAway is the reason for the release of a shard whose work failed as often as Config.Restart
// allows.
var ErrGaveAway = errors.New("its work failed too often")

// ErrIdentity is reported if another node has this node's identity, or a process that hangs has it. Even
// then no shard has two owners. But shards are not balanced between the two nodes, and pins and drains of
// one apply to both.
var ErrIdentity = errors.New("another node has the same identity")

// A LostError is the cause of the context of a shard's work when the shard was lost. If the shard is given
// up, the cause is leader.ErrReleased.
type LostError struct {
	Group string
	Shard Shard
	Held  time.Duration // how long the shard was owned
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("shards: %s of %s (term %v) lost after %v: %v", e.Shard.Name, e.Group, e.Shard.Term, e.Held.Round(time.Millisecond), e.Cause)
}

// Is reports whether target is leader.ErrLost.
func (e *LostError) Is(target error) bool { return target == leader.ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }
