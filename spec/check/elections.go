package check

import (
	"slices"
	"strings"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/leader"
)

// Elections replays a run of elections. The events of each process must be those of the machine of an elector, whose inputs
// are hidden: at each event the check keeps every position that the machine can have reached. Across processes it checks the
// order of terms:
//
//   - A term that a process asked for after another term had begun is greater.
//   - No guarded transaction that began after a later term had begun commits.
//   - If a leadership was released, and no fault came in between, the next one begins after the work of the first has ended.
func Elections(run []trace.Event) error {
	nodes := make(map[string]*elector)
	terms := newTerms()
	for i, e := range run {
		switch e.Kind {
		case trace.State, trace.Acquired, trace.Recovered, trace.Released, trace.Lost, trace.AcquireFailed, trace.Stopped:
			n := nodes[e.Process]
			if n == nil {
				n = newElector(e)
				nodes[e.Process] = n
			}
			if wrong := n.see(e); wrong != "" {
				return refuse(run, i, "%s", wrong)
			}
			if e.Kind == trace.State && (e.To == leader.Acquiring.String() && e.From == leader.Follower.String() || e.To == leader.Reconnecting.String()) {
				terms.asks(e)
			}
		}
		if wrong := terms.see(i, e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
		if e.Kind == trace.State && e.From == leader.Leader.String() {
			if err := terms.reported(run, place{e.Process, e.Key}); err != nil {
				return err
			}
		}
	}
	return terms.finish(run)
}

// An elector is the positions in which the machine of one process can be.
type elector struct {
	rules ruling
	at    []standing
}

// A standing is a position, and the events of the last transition that have not been seen.
type standing struct {
	at   position
	owes []string
}

func newElector(first trace.Event) *elector {
	return &elector{rules: ruling{grace: first.Grace, reacquire: !first.LeadOnce}, at: []standing{{}}}
}

// see moves the machine by one event, and returns what is wrong.
func (n *elector) see(e trace.Event) string {
	word := wordOf(e)
	var next []standing
	for _, s := range n.silently(n.at) {
		if len(s.owes) > 0 {
			if s.owes[0] == word {
				next = add(next, standing{s.at, s.owes[1:]})
			}
			continue
		}
		for _, t := range n.steps(s.at) {
			if owes := observed(s.at, t); len(owes) > 0 && owes[0] == word {
				next = add(next, standing{t.to, owes[1:]})
			}
		}
	}
	if len(next) == 0 {
		return "the machine of an elector does not report " + word + " in " + n.describe()
	}
	n.at = next
	return ""
}

// steps returns the transitions from a position, with any input.
func (n *elector) steps(from position) (all []transition) {
	for _, r := range leaderTable {
		if r.from == from.State && leaderHolds(r.when, n.rules) {
			for _, stopping := range []bool{false, true} {
				if stopping || !from.Stopping { // a stop is the input, or came before
					all = append(all, leaderResolve(r, n.rules, stopping))
				}
			}
		}
	}
	return all
}

// silently adds the positions that the machine can reach without an event.
func (n *elector) silently(from []standing) []standing {
	all := slices.Clone(from)
	for i := 0; i < len(all); i++ {
		if len(all[i].owes) > 0 {
			continue
		}
		for _, t := range n.steps(all[i].at) {
			if len(observed(all[i].at, t)) == 0 {
				all = add(all, standing{at: t.to})
			}
		}
	}
	return all
}

func (n *elector) describe() string {
	var all []string
	for _, s := range n.at {
		text := s.at.State.String()
		if len(s.owes) > 0 {
			text += ", before " + strings.Join(s.owes, " and ")
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; or in ")
}

// observed returns the events of a transition, in the order in which the elector reports them. Errors are left out.
func observed(from position, t transition) (words []string) {
	if from.State != t.to.State {
		words = append(words, from.State.String()+" → "+t.to.State.String())
	}
	for _, a := range t.actions {
		if word := actionWords[a]; word != "" {
			words = append(words, word)
		}
	}
	return words
}

var actionWords = map[action]string{
	emitAcquired: string(trace.Acquired), emitRecovered: string(trace.Recovered), emitReleased: string(trace.Released), emitLost: string(trace.Lost),
	emitAcquireFailed: string(trace.AcquireFailed), emitStopped: string(trace.Stopped),
}

func wordOf(e trace.Event) string {
	if e.Kind == trace.State {
		return e.From + " → " + e.To
	}
	return string(e.Kind)
}

func add(all []standing, s standing) []standing {
	if slices.ContainsFunc(all, func(o standing) bool { return o.at == s.at && slices.Equal(o.owes, s.owes) }) {
		return all
	}
	return append(all, s)
}
