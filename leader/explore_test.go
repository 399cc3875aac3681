package leader

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A judge watches a machine from outside and remembers what it was reported.
type judge struct {
	at         position
	stopped    bool // reported Stopped, or never started
	leadership bool // reported Acquired, and not its end
	context    bool // the leader's context has not ended
}

var notStarted = judge{stopped: true}

// watch lets the machine make a step, and returns what is wrong with it.
func (j judge) watch(m *machine, in input, r rules) (judge, error) {
	from := j.at
	to, actions := m.step(from, in, r)
	j.at = to
	if from.State == Stopped && to.State != Stopped {
		j.stopped = false
	}
	for _, a := range actions {
		if err := j.act(a); err != nil {
			return j, fmt.Errorf("%v, input %d, %+v: %w", from, in, r, err)
		}
	}
	if err := j.look(from, in); err != nil {
		return j, fmt.Errorf("%v → %v, input %d, %+v: %w", from, to, in, r, err)
	}
	return j, nil
}

func (j *judge) act(a action) error {
	if a >= emitAcquired && j.stopped {
		return fmt.Errorf("action %d after Stopped", a)
	}
	wrong := false
	switch a {
	case beginTerm:
		wrong, j.context = j.context, true
	case endTerm:
		wrong, j.context = !j.context, false
	case emitAcquired:
		wrong, j.leadership = j.leadership, true
	case emitRecovered:
		wrong = !j.leadership
	case emitReleased, emitLost:
		wrong, j.leadership = !j.leadership, false
	case emitStopped:
		wrong, j.stopped = j.leadership, true
	}
	if wrong {
		return fmt.Errorf("action %d out of turn", a)
	}
	return nil
}

func (j *judge) look(from position, in input) error {
	state := j.at.State
	switch {
	case j.context != (state == Leader):
		return fmt.Errorf("the context lives: %v", j.context)
	case j.leadership != (state == Leader || state == Reconnecting || state == Releasing):
		return fmt.Errorf("leads, as observers know it: %v", j.leadership)
	case j.stopped != (state == Stopped):
		return fmt.Errorf("Stopped was reported: %v", j.stopped)
	case j.at.Stopping && state != Releasing:
		return fmt.Errorf("stopping in %v", state)
	case from.Stopping && state != Stopped && j.at != from:
		return fmt.Errorf("a stop was forgotten")
	case in == stop && state != Stopped && j.at != leaving:
		return fmt.Errorf("a stop was ignored")
	}
	return nil
}

// explore visits everything that machine and judge can reach together, with every
// input in every state: what holds here holds after every sequence of any length.
func explore(m *machine) (visited int, err error) {
	for _, r := range allRules {
		seen := map[judge]bool{notStarted: true}
		for queue := []judge{notStarted}; len(queue) > 0; queue = queue[1:] {
			stops := false
			for in := range inputs {
				next, err := queue[0].watch(m, in, r)
				if err != nil {
					return visited, err
				}
				stops = stops || next.at.State == Stopped
				if !seen[next] {
					seen[next] = true
					queue = append(queue, next)
				}
			}
			if at := queue[0].at; !stops && !reachesStopped(m, at, r) {
				return visited, fmt.Errorf("%v: a stop never arrives, %+v", at, r)
			}
		}
		visited += len(seen)
	}
	return visited, nil
}

// reachesStopped reports whether a stop and what can come after it may end in Stopped.
func reachesStopped(m *machine, at position, r rules) bool {
	at, _ = m.step(at, stop, r)
	for in := range inputs {
		if to, _ := m.step(at, in, r); to.State == Stopped {
			return true
		}
	}
	return at.State == Stopped
}

func TestTheMachineKeepsItsPromisesAfterEverySequence(t *testing.T) {
	t.Parallel()
	visited, err := explore(&transitions)
	require.NoError(t, err)
	t.Logf("%d states of machine and judge", visited)
	assert.Greater(t, visited, 4*5)
}

// The language of events: every Acquired (A) is followed by Recovered (V) at will
// and one Released or Lost (E), before the next Acquired or Stopped (S); after
// that comes nothing but the next start (B).
var history = regexp.MustCompile(`^(B(AV*E)*S)*(B(AV*E)*(AV*)?)?$`)

func TestEverySequenceOfInputsTellsALegalHistory(t *testing.T) {
	t.Parallel()
	const depth = 11 // of inputs that have an effect: the others lead nowhere
	letters := map[action]byte{emitAcquired: 'A', emitRecovered: 'V', emitReleased: 'E', emitLost: 'E', emitStopped: 'S'}
	sequences := 0
	var walk func(at position, r rules, reported []byte, left int)
	walk = func(at position, r rules, reported []byte, left int) {
		if left == 0 {
			sequences++
			if !history.Match(reported) {
				require.FailNow(t, "an illegal history", "%s, %+v", reported, r)
			}
			return
		}
		for in := range inputs {
			to, actions := transitions.step(at, in, r)
			if to == at && len(observers(actions)) == 0 {
				continue
			}
			more := reported
			if at.State == Stopped {
				more = append(more, 'B')
			}
			for _, a := range actions {
				if letter, ok := letters[a]; ok {
					more = append(more, letter)
				}
			}
			walk(to, r, more, left-1)
		}
	}
	for _, r := range allRules {
		walk(position{}, r, make([]byte, 0, 64), depth)
	}
	t.Logf("%d sequences", sequences)
	assert.Greater(t, sequences, 100_000)
}

// The proofs above are worth what they find in machines that are wrong.
func TestTheExplorationFindsEveryMutation(t *testing.T) {
	t.Parallel()
	without := func(drop action) func(*row) {
		return func(r *row) {
			r.actions = slices.DeleteFunc(slices.Clone(r.actions), func(a action) bool { return a == drop })
		}
	}
	with := func(more action) func(*row) {
		return func(r *row) { r.actions = append(slices.Clone(r.actions), more) }
	}
	to := func(s State) func(*row) { return func(r *row) { r.to = destination(s) } }
	for _, c := range []struct {
		name   string
		from   State
		input  input
		mutate func(*row)
	}{
		{"the end of the grace is not reported", Reconnecting, graceOver, without(emitLost)},
		{"a stop while reconnecting reports no end", Reconnecting, stop, without(emitLost)},
		{"a failed release reports no end", Releasing, releaseFailed, without(emitReleased)},
		{"a failed attempt reports Lost", Acquiring, failed, with(emitLost)},
		{"a recovery reports Acquired", Reconnecting, reacquired, with(emitAcquired)},
		{"a release is reported twice", Releasing, released, with(emitLost)},
		{"a loss leaves the leader's context alive", Leader, lost, without(endTerm)},
		{"an attempt that succeeds begins no term", Acquiring, acquired, without(beginTerm)},
		{"a renewal begins another term", Leader, renewed, with(beginTerm)},
		{"a follower ignores stop", Follower, stop, to(Follower)},
		{"a leader ignores stop", Leader, stop, to(Leader)},
		{"a stop is forgotten while releasing", Releasing, released, to(Follower)},
		{"a node that reconnects counts as leader", Leader, lost, to(Leader)},
		{"a stopped node reports an error", Stopped, start, func(r *row) { r.to, r.actions = destination(Stopped), do(emitError) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mutated := slices.Clone(table)
			for i := range mutated {
				if mutated[i].from == c.from && mutated[i].input == c.input {
					c.mutate(&mutated[i])
				}
			}
			m := compile(mutated)
			_, err := explore(&m)
			require.Error(t, err)
			t.Log(err)
		})
	}
}
