package multiplex

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// State is the worst of the sessions that the locks live on.
func (v *Session) State(now time.Time) (state session.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return session.Lost
	}
	for i := range v.holds {
		state = max(state, v.holds[i].at.state(now))
	}
	return state
}

// Loss is the first one of the sessions that the locks live on.
func (v *Session) Loss() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return v.lost
	}
	for i := range v.holds {
		if err := v.holds[i].at.loss(); err != nil {
			return err
		}
	}
	return nil
}

// Verified reports whether all the sessions are that the locks live on.
func (v *Session) Verified(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return false
	}
	for i := range v.holds {
		if !v.holds[i].at.verified(now) {
			return false
		}
	}
	return true
}

// Verify has the server asked on each of them.
func (v *Session) Verify() error {
	v.mu.Lock()
	holds, lost := slices.Clone(v.holds), v.lost
	v.mu.Unlock()
	if lost != nil {
		return lost
	}
	for _, h := range holds {
		if err := h.at.verify(v); err != nil {
			return err
		}
	}
	return nil
}
