package leader

import (
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
