package leader

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	plain       = rules{reacquire: true}
	damped      = rules{reacquire: true, grace: true}
	once        = rules{}
	onceDamped  = rules{grace: true}
	allRules    = []rules{plain, damped, once, onceDamped}
	leaving     = position{State: Releasing, Stopping: true}
	steppingOff = position{State: Releasing}
)

// Every row of the table in the specification of the machine that this one
// descends from. Where ours differs on purpose, the case says why.
func TestMachineFollowsItsSpecification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		from    position
		in      input
		rules   []rules
		to      position
		emits   []action
		differs string
	}{
		{name: "Start opens the node", from: position{State: Stopped}, in: start, rules: allRules, to: position{State: Follower}},
		{name: "the retry timer starts an attempt", from: position{State: Follower}, in: attempt, rules: allRules, to: position{State: Acquiring}},
		{name: "a stop ends a follower", from: position{State: Follower}, in: stop, rules: allRules, to: position{State: Stopped}, emits: do(emitStopped)},
		{name: "an attempt that succeeds leads", from: position{State: Acquiring}, in: acquired, rules: allRules, to: position{State: Leader}, emits: do(emitAcquired)},
		{name: "an attempt that finds a leader backs off", from: position{State: Acquiring}, in: refused, rules: allRules, to: position{State: Follower}, emits: do(emitAcquireFailed)},
		{
			name: "an attempt that fails backs off", from: position{State: Acquiring}, in: failed, rules: []rules{plain, damped}, to: position{State: Follower},
			emits: do(emitAcquireFailed, emitError), differs: "the specification reports Lost of a leadership that never was",
		},
		{
			name: "an attempt that fails ends a node that does not reacquire", from: position{State: Acquiring}, in: failed, rules: []rules{once, onceDamped}, to: position{State: Stopped},
			emits: do(emitAcquireFailed, emitError, emitStopped), differs: "the specification reports Lost of a leadership that never was",
		},
		{name: "a stop ends an attempt", from: position{State: Acquiring}, in: stop, rules: allRules, to: position{State: Stopped}, emits: do(emitStopped)},
		{name: "a renewal changes nothing", from: position{State: Leader}, in: renewed, rules: allRules, to: position{State: Leader}},
		{
			name: "a failed renewal is tolerated", from: position{State: Leader}, in: renewFailed, rules: allRules, to: position{State: Leader},
			emits: do(emitError), differs: "in the specification the first failure is a loss; here the lease decides",
		},
		{
			name: "a loss is damped", from: position{State: Leader}, in: lost, rules: []rules{damped, onceDamped}, to: position{State: Reconnecting},
			emits: do(emitError),
		},
		{name: "a loss without grace is reported", from: position{State: Leader}, in: lost, rules: []rules{plain}, to: position{State: Follower}, emits: do(emitLost, emitError)},
		{name: "a loss without grace ends a node that does not reacquire", from: position{State: Leader}, in: lost, rules: []rules{once}, to: position{State: Stopped}, emits: do(emitLost, emitError, emitStopped)},
		{name: "a stop releases first", from: position{State: Leader}, in: stop, rules: allRules, to: leaving},
		{name: "a step-down releases", from: position{State: Leader}, in: stepDown, rules: allRules, to: steppingOff, emits: do(emitError)}, // if a service failed
		{
			name: "a recovery leads again", from: position{State: Reconnecting}, in: reacquired, rules: allRules, to: position{State: Leader},
			emits: do(emitRecovered), differs: "the specification reports nothing: then nobody knows that work has to start again",
		},
		{name: "somebody else led meanwhile", from: position{State: Reconnecting}, in: superseded, rules: []rules{plain, damped}, to: position{State: Acquiring}, emits: do(emitLost)},
		{name: "somebody else led meanwhile, and this node does not reacquire", from: position{State: Reconnecting}, in: superseded, rules: []rules{once, onceDamped}, to: position{State: Stopped}, emits: do(emitLost, emitStopped)},
		{name: "somebody else leads by now", from: position{State: Reconnecting}, in: notReacquired, rules: []rules{plain, damped}, to: position{State: Follower}, emits: do(emitLost)},
		{name: "somebody else leads by now, and this node does not reacquire", from: position{State: Reconnecting}, in: notReacquired, rules: []rules{once, onceDamped}, to: position{State: Stopped}, emits: do(emitLost, emitStopped)},
		{
			name: "an attempt to recover that fails is repeated", from: position{State: Reconnecting}, in: failed, rules: allRules, to: position{State: Reconnecting},
			emits: do(emitError), differs: "in the specification the first failure ends the grace, which then damps nothing",
		},
		{name: "the grace ends", from: position{State: Reconnecting}, in: graceOver, rules: []rules{plain, damped}, to: position{State: Follower}, emits: do(emitLost)},
		{name: "the grace ends, and this node does not reacquire", from: position{State: Reconnecting}, in: graceOver, rules: []rules{once, onceDamped}, to: position{State: Stopped}, emits: do(emitLost, emitStopped)},
		{
			name: "a stop ends a recovery", from: position{State: Reconnecting}, in: stop, rules: allRules, to: position{State: Stopped},
			emits: do(emitLost, emitStopped), differs: "the specification never reports the end of this leadership",
		},
		{name: "released by a stop", from: leaving, in: released, rules: allRules, to: position{State: Stopped}, emits: do(emitReleased, emitError, emitStopped)},
		{name: "released by a step-down", from: steppingOff, in: released, rules: []rules{plain, damped}, to: position{State: Follower}, emits: do(emitReleased, emitError)},
		{name: "released by a step-down, and this node does not reacquire", from: steppingOff, in: released, rules: []rules{once, onceDamped}, to: position{State: Stopped}, emits: do(emitReleased, emitError, emitStopped)},
		{name: "a release for a stop fails", from: leaving, in: releaseFailed, rules: allRules, to: position{State: Stopped}, emits: do(emitReleased, emitError, emitStopped)},
		{
			name: "a release for a step-down fails", from: steppingOff, in: releaseFailed, rules: []rules{plain, damped}, to: position{State: Follower},
			emits: do(emitReleased, emitError), differs: "in the specification it stops, and the node is out of the election for ever",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range c.rules {
				to, actions := transitions.step(c.from, c.in, r)
				assert.Equal(t, c.to, to)
				assert.Equal(t, c.emits, observers(actions), c.differs)
			}
		})
	}
}

func observers(actions []action) (reported []action) {
	for _, a := range actions {
		if a >= emitAcquired {
			reported = append(reported, a)
		}
	}
	return reported
}

func TestAnInputWithoutARowChangesNothing(t *testing.T) {
	t.Parallel()
	to, actions := transitions.step(position{State: Stopped}, acquired, plain)
	assert.Equal(t, position{State: Stopped}, to)
	assert.Empty(t, actions)
}

func TestNoTwoRowsContradictEachOther(t *testing.T) {
	t.Parallel()
	for i, a := range table {
		for _, b := range table[i+1:] {
			if a.from == b.from && a.input == b.input {
				for _, r := range allRules {
					assert.False(t, a.when.holds(r) && b.when.holds(r), "%v, input %d", a.from, a.input)
				}
			}
		}
	}
}

func TestEffectsComeBeforeObservers(t *testing.T) {
	t.Parallel()
	for _, row := range table {
		assert.True(t, slices.IsSortedFunc(row.actions, func(a, b action) int {
			return index(a >= emitAcquired) - index(b >= emitAcquired)
		}), "%v, input %d", row.from, row.input)
	}
}

func BenchmarkStep(b *testing.B) {
	round := []input{start, attempt, refused, attempt, acquired, renewed, stop, released}
	at, i := position{}, 0
	for b.Loop() {
		at, _ = transitions.step(at, round[i%len(round)], damped)
		i++
	}
	require.NotEqual(b, State(99), at.State)
}

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
