package leadercmd

import (
	"context"
	"log/slog"

	"github.com/pglatch/pglatch/leader"
)

// An attemptLog logs a follower's attempts: the first one after each other transition. The Elector logs every attempt,
// at debug level, because they continue while another node leads.
type attemptLog struct{ tried, refused bool }

// transition handles each change of state, in order.
func (a *attemptLog) transition(log *slog.Logger, from, to leader.State) {
	var logged *bool
	switch {
	case from == leader.Follower && to == leader.Acquiring:
		logged = &a.tried
	case from == leader.Acquiring && to == leader.Follower:
		logged = &a.refused
	default:
		*a = attemptLog{}
		return
	}
	if *logged {
		return
	}
	*logged = true
	if !log.Enabled(context.Background(), slog.LevelDebug) { // otherwise the Elector has logged it
		log.Info("state_change", slog.Group("state", slog.String("from", from.String()), slog.String("to", to.String())))
	}
}
