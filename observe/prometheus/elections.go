package prometheus

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// An elections counts events of elections. The names are client-go's where it has one, and those of
// "pglatch leader run --http".
type elections struct {
	transitions, losses, failures, overruns *prometheus.CounterVec
	collectors

	mu   sync.Mutex
	open []*election
}

// An election is a watched Elector.
type election struct {
	*leader.Elector
	began time.Time   // of its leadership; zero = it does not lead
	term  leader.Term // the last one in which it led
}

var (
	masterStatus = gauge("leader_election_master_status", "1 if this process leads, by its clock, else 0. Group by name (the election) and database.", "name", "database")
	electorState = gauge("leader_election_state", "Electors of this process in each state.", "name", "database", "state")
	termEra      = gauge("leader_election_term_era", "Era of the last term in which this process led, 0 before. Terms are ordered by era, then number.", "name", "database")
	termNumber   = gauge("leader_election_term_number", "Number, in its era, of the last term in which this process led, 0 before.", "name", "database")
	leadingSince = gauge("leader_election_leading_since_timestamp_seconds", "When this process' leadership began, by its clock; 0 while it does not lead.", "name", "database")
)

// The labels for a node's transitions, and for the reasons of a loss of leadership.
const (
	toLeader, toRecovered, toReleased, toLost = "leader", "recovered", "released", "lost"
	byTaken, byExpired                        = "taken", "expired"
)

var states = []leader.State{leader.Stopped, leader.Follower, leader.Acquiring, leader.Leader, leader.Reconnecting, leader.Releasing}

func newElections() *elections {
	e := &elections{
		transitions: counters("leader_election_transitions_total", "Transitions of this node, by its new state.", "name", "database", "to"),
		losses: counters("leader_election_losses_total", "Leaderships that were lost: taken, if the backend reported the loss, or expired, if no renewal succeeded in time.",
			"name", "database", "reason"),
		failures: counters("leader_election_attempt_failures_total", "Attempts to lead that failed, except those while another node leads.", "name", "database"),
		overruns: counters("leader_election_drains_exceeded_total", "Leaderships whose work did not end within DrainTimeout.", "name", "database"),
	}
	e.collectors = collectors{e.transitions, e.losses, e.failures, e.overruns}
	return e
}

func (e *elections) describe(to chan<- *prometheus.Desc) {
	e.collectors.describe(to)
	for _, n := range []number{masterStatus, electorState, termEra, termNumber, leadingSince} {
		to <- n.desc
	}
}

// Watch counts the events of an Elector until stop is called. Call it before the Elector's Start,
// if possible. stop blocks until the watch has ended. Afterwards the counters remain and the gauges
// disappear.
func (m *Metrics) Watch(elector *leader.Elector) (stop func()) {
	e, one := m.elections, &election{Elector: elector}
	name, database := elector.Config().Name, elector.Database()
	for _, to := range []string{toLeader, toRecovered, toReleased, toLost} {
		e.transitions.WithLabelValues(name, database, to)
	}
	for _, reason := range []string{byTaken, byExpired} {
		e.losses.WithLabelValues(name, database, reason)
	}
	e.failures.WithLabelValues(name, database)
	e.overruns.WithLabelValues(name, database)
	e.mu.Lock()
	e.open = append(e.open, one)
	e.mu.Unlock()
	end := background.Read(elector.Events, func(v leader.Event) { e.count(one, v) })
	return func() {
		end()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.open = slices.DeleteFunc(e.open, func(o *election) bool { return o == one })
	}
}

func (e *elections) count(of *election, v leader.Event) {
	name, database := of.Config().Name, of.Database()
	switch v.Kind {
	case leader.EventAcquired:
		e.leads(of, v.Term, v.Time)
		e.transitions.WithLabelValues(name, database, toLeader).Inc()
	case leader.EventRecovered:
		e.leads(of, v.Term, v.Time)
		e.transitions.WithLabelValues(name, database, toRecovered).Inc()
	case leader.EventReleased:
		e.leads(of, v.Term, time.Time{})
		e.transitions.WithLabelValues(name, database, toReleased).Inc()
	case leader.EventLost:
		e.leads(of, v.Term, time.Time{})
		e.transitions.WithLabelValues(name, database, toLost).Inc()
		e.losses.WithLabelValues(name, database, reasonOf(v.Err)).Inc()
	case leader.EventAcquireFailed:
		if v.Err != nil {
			e.failures.WithLabelValues(name, database).Inc()
		}
	case leader.EventError:
		if errors.Is(v.Err, leader.ErrDrainExceeded) {
			e.overruns.WithLabelValues(name, database).Inc()
		}
	case leader.EventStateChange, leader.EventNewLeader, leader.EventStopped: // the gauges show them
	}
}

func reasonOf(err error) string {
	if lost, ok := errors.AsType[*leader.LostError](err); ok && errors.Is(lost.Cause, leader.ErrLost) {
		return byTaken
	}
	return byExpired
}

// leads records the term of a node, and when its leadership began.
func (e *elections) leads(of *election, term leader.Term, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of.term, of.began = term, began
}

// A standing is the combined state of the Electors of one name and database, usually a single one.
type standing struct {
	leads  bool
	states map[leader.State]int
	term   leader.Term
	began  time.Time
}

func (e *elections) collect(to chan<- prometheus.Metric) {
	e.collectors.collect(to)
	for at, s := range e.standings() {
		name, database := at[0], at[1]
		leads, since := 0.0, 0.0
		if s.leads {
			leads = 1
			since = float64(s.began.UnixMilli()) / 1000
		}
		masterStatus.send(to, leads, name, database)
		leadingSince.send(to, max(since, 0), name, database) // 0 until the event of a new leader arrives
		termEra.send(to, float64(s.term.Era), name, database)
		termNumber.send(to, float64(s.term.N), name, database)
		for _, state := range states {
			electorState.send(to, float64(s.states[state]), name, database, state.String())
		}
	}
}

func (e *elections) standings() map[[2]string]*standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[[2]string]*standing)
	for _, o := range e.open {
		at := [2]string{o.Config().Name, o.Database()}
		s := all[at]
		if s == nil {
			s = &standing{states: make(map[leader.State]int)}
			all[at] = s
		}
		s.states[o.State()]++
		if o.term.Compare(s.term) > 0 {
			s.term = o.term
		}
		if o.IsLeader() {
			s.leads, s.began = true, o.began
		}
	}
	return all
}
