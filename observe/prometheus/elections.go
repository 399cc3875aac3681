package prometheus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/leader"
)

// An elections is what is counted of elections. The names are client-go's where it has one, and
// those of "pglatch leader run --http".
type elections struct {
	transitions, losses, failures, overruns *prometheus.CounterVec
	collectors

	mu   sync.Mutex
	open []*election
}

// An election is an Elector that is watched.
type election struct {
	*leader.Elector
	began time.Time   // of its leadership; zero = it has none
	term  leader.Term // the last one in which it led
}

var (
	masterStatus = gauge("leader_election_master_status", "1 if this process leads, by the clock, else 0: \"name\" is the election. Group by name.", "name")
	electorState = gauge("leader_election_state", "Electors of this process in each state.", "name", "state")
	termEra      = gauge("leader_election_term_era", "Era of the last term in which this process led, 0 before. Terms are ordered by era, then number.", "name")
	termNumber   = gauge("leader_election_term_number", "Number, in its era, of the last term in which this process led, 0 before.", "name")
	leadingSince = gauge("leader_election_leading_since_timestamp_seconds", "When this process' leadership began, by its clock; 0 while it does not lead.", "name")
)

// The labels of what becomes of a node, and of why leadership was lost.
const (
	toLeader, toRecovered, toReleased, toLost = "leader", "recovered", "released", "lost"
	byTaken, byExpired                        = "taken", "expired"
)

var states = []leader.State{leader.Stopped, leader.Follower, leader.Acquiring, leader.Leader, leader.Reconnecting, leader.Releasing}

func newElections() *elections {
	e := &elections{
		transitions: counters("leader_election_transitions_total", "What became of this node.", "name", "to"),
		losses: counters("leader_election_losses_total", "Leaderships that were lost: taken, if the backend said so, or expired, if no renewal succeeded in time.",
			"name", "reason"),
		failures: counters("leader_election_attempt_failures_total", "Attempts to lead that failed, and not because somebody else leads.", "name"),
		overruns: counters("leader_election_drains_exceeded_total", "Leaderships whose work did not end within DrainTimeout.", "name"),
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

// Watch counts what becomes of an Elector, best from before its Start, until stop is called,
// which blocks until nothing of it is left. The counters stay then, the gauges go.
func (m *Metrics) Watch(elector *leader.Elector) (stop func()) {
	e, one := m.elections, &election{Elector: elector}
	name := elector.Name()
	for _, to := range []string{toLeader, toRecovered, toReleased, toLost} {
		e.transitions.WithLabelValues(name, to)
	}
	for _, reason := range []string{byTaken, byExpired} {
		e.losses.WithLabelValues(name, reason)
	}
	e.failures.WithLabelValues(name)
	e.overruns.WithLabelValues(name)
	e.mu.Lock()
	e.open = append(e.open, one)
	e.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	events := elector.Events(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for v := range events {
			e.count(one, v)
		}
	})
	return func() {
		cancel()
		watching.Wait()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.open = slices.DeleteFunc(e.open, func(o *election) bool { return o == one })
	}
}

func (e *elections) count(of *election, v leader.Event) {
	name := of.Name()
	switch v.Kind {
	case leader.EventAcquired:
		e.leads(of, v.Term, v.Time)
		e.transitions.WithLabelValues(name, toLeader).Inc()
	case leader.EventRecovered:
		e.leads(of, v.Term, v.Time)
		e.transitions.WithLabelValues(name, toRecovered).Inc()
	case leader.EventReleased:
		e.leads(of, v.Term, time.Time{})
		e.transitions.WithLabelValues(name, toReleased).Inc()
	case leader.EventLost:
		e.leads(of, v.Term, time.Time{})
		e.transitions.WithLabelValues(name, toLost).Inc()
		e.losses.WithLabelValues(name, reasonOf(v.Err)).Inc()
	case leader.EventAcquireFailed:
		if v.Err != nil {
			e.failures.WithLabelValues(name).Inc()
		}
	case leader.EventError:
		if errors.Is(v.Err, leader.ErrDrainExceeded) {
			e.overruns.WithLabelValues(name).Inc()
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

// leads notes the term of a node, and when its leadership began.
func (e *elections) leads(of *election, term leader.Term, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of.term, of.began = term, began
}

// A standing is where the Electors of one name stand: one of them, mostly.
type standing struct {
	leads  bool
	states map[leader.State]int
	term   leader.Term
	began  time.Time
}

func (e *elections) collect(to chan<- prometheus.Metric) {
	e.collectors.collect(to)
	for name, s := range e.standings() {
		leads, since := 0.0, 0.0
		if s.leads {
			leads = 1
			since = float64(s.began.UnixMilli()) / 1000
		}
		masterStatus.send(to, leads, name)
		leadingSince.send(to, max(since, 0), name) // it leads, and the event is on its way
		termEra.send(to, float64(s.term.Era), name)
		termNumber.send(to, float64(s.term.N), name)
		for _, state := range states {
			electorState.send(to, float64(s.states[state]), name, state.String())
		}
	}
}

func (e *elections) standings() map[string]*standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[string]*standing)
	for _, o := range e.open {
		s := all[o.Name()]
		if s == nil {
			s = &standing{states: make(map[leader.State]int)}
			all[o.Name()] = s
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
