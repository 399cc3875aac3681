package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/pglatch/pglatch/leader"
)

// An Elector is a gocron.Elector: only the leader's scheduler runs jobs. With an Elector, gocron does not
// ask a Locker.
type Elector struct{ Leader *leader.Elector }

var _ gocron.Elector = Elector{}

// IsLeader returns nil if this node leads, otherwise leader.ErrNotLeader. It does no I/O: it
// checks the deadline of the last renewal.
func (e Elector) IsLeader(context.Context) error {
	if e.Leader.IsLeader() {
		return nil
	}
	return leader.ErrNotLeader
}
