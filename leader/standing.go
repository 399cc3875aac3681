package leader

import (
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// maxHandOvers is the number of leader changes that an Elector remembers.
const maxHandOvers = 8

// A record stores what an Elector last reported, for Standing.
type record struct {
	mu        sync.Mutex
	since     time.Time // of the state
	err       error     // of the last attempt
	problem   error     // found by the last audit
	leader    string
	handOvers []driver.HandOver // the newest first
}

// note records an event of the candidate self.
func (r *record) note(v Event, self string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch v.Kind {
	case EventStateChange:
		r.since = v.Time
	case EventAcquireFailed:
		r.err = v.Err
	case EventReleased, EventLost:
		r.leader = ""
	case EventAcquired:
		r.leads(driver.HandOver{At: v.Time, Identity: self, Term: v.Term})
	case EventNewLeader:
		r.leads(driver.HandOver{At: v.Time, Identity: v.Holder.Identity, Term: v.Holder.Term})
	}
}

// audited records the result of an audit; nil = no problem.
func (r *record) audited(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = err
}

// leads records a new leader. The caller holds mu.
func (r *record) leads(h driver.HandOver) {
	r.err, r.leader = nil, h.Identity
	if len(r.handOvers) > 0 && r.handOvers[0].Identity == h.Identity && r.handOvers[0].Term == h.Term {
		return
	}
	r.handOvers = slices.Insert(r.handOvers, 0, h)
	r.handOvers = r.handOvers[:min(len(r.handOvers), maxHandOvers)]
}

// A candidate shows an Elector to its backend.
type candidate struct{ *Elector }

// Standing implements driver.Candidate.
func (c candidate) Standing() driver.Standing {
	r := &c.record
	r.mu.Lock()
	defer r.mu.Unlock()
	s := driver.Standing{
		Name: c.config.Name, Identity: c.config.Identity, State: c.State().String(), Since: r.since, Leader: r.leader, StandsBack: c.standsBack.Load(),
		Term: c.Term(), Lease: c.config.LeaseDuration, Err: r.err, HandOvers: slices.Clone(r.handOvers),
	}
	if s.Err == nil {
		s.Err = r.problem
	}
	if c.IsLeader() {
		s.Leader = c.config.Identity
	}
	return s
}

// Resign implements driver.Candidate.
func (c candidate) Resign() { c.Elector.Resign(nil) }
