package leader

// An input is an event that can change a node's state.
type input uint8

const (
	start         input = iota // Start was called
	stop                       // Shutdown was called, or the context of Run ended
	stepDown                   // StepDown was called, or a service failed to start
	attempt                    // the next attempt is due
	acquired                   // the attempt succeeded
	refused                    // somebody else leads
	pending                    // the attempt is not finished and continues
	failed                     // the attempt failed: nobody knows who leads
	hopeless                   // the attempt failed with a permanent error, and no earlier success makes it worth another
	renewed                    // a renewal succeeded
	renewFailed                // a renewal failed, and there is time for another; or it succeeded, and an audit found a problem
	lost                       // leadership is gone or cannot be renewed in time
	reacquired                 // leads again, and nobody led in between
	superseded                 // leads again, but another node may have led in between
	notReacquired              // another node leads by now
	graceOver                  // the time to reconnect is over
	released                   // leadership was given up
	releaseFailed              // the release failed: leadership ends with its lease at the latest
	exhausted                  // the retry strategy allows no further attempt
	inputs
)

// An action is one step that the Elector takes on a transition. Effects come first, then the state changes,
// then observers are notified. Work that lasts as long as a state (wait, attempt, renew, reconnect, drain and
// release) is in the Elector's method for that state.
type action uint8

const (
	// effects
	beginTerm    action = iota // the leader's context begins
	endTerm                    // the leader's context ends
	abandon                    // the backend releases what it may hold
	closeBackend               // the backend closes all that it holds
	startGrace                 // the time to reconnect begins
	resetRetry                 // the next attempt counts as the first and is due at once
	backOff                    // the retry strategy sets the time of the next attempt
	standAside                 // the next attempt gives others the first chance
	// observers
	emitAcquired
	emitRecovered
	emitReleased
	emitLost
	emitAcquireFailed
	emitError // if there is one
	emitStopped
)

// A destination is a state, or again, which depends on the config.
type destination uint8

// again is Follower, or Stopped while stopping or with LeadOnce.
const again = destination(Releasing) + 1

// A condition selects one of two rows for the same input.
type condition uint8

const (
	always condition = iota
	withGrace
	withoutGrace
	withReacquire
	withoutReacquire
)

// A row is one transition.
type row struct {
	from    State
	input   input
	when    condition
	to      destination
	actions []action
}

// table defines the machine. An input without a row changes nothing. Every transition to Stopped also closes
// the backend and calls OnStopped, after the row's own actions.
var table = []row{
	{Stopped, start, always, destination(Follower), nil},

	{Follower, attempt, always, destination(Acquiring), nil},
	{Follower, stop, always, destination(Stopped), do(abandon)},
	{Follower, exhausted, always, destination(Stopped), do(abandon)},

	{Acquiring, acquired, always, destination(Leader), do(beginTerm, resetRetry, emitAcquired)},
	{Acquiring, refused, always, destination(Follower), do(backOff, emitAcquireFailed)},
	{Acquiring, pending, always, destination(Acquiring), do(emitAcquireFailed)},
	{Acquiring, failed, always, again, do(abandon, closeBackend, backOff, emitAcquireFailed, emitError)},
	{Acquiring, hopeless, always, destination(Stopped), do(abandon, emitAcquireFailed, emitError)},
	{Acquiring, stop, always, destination(Stopped), do(abandon)},

	{Leader, renewed, always, destination(Leader), nil},
	{Leader, renewFailed, always, destination(Leader), do(emitError)},
	{Leader, lost, withGrace, destination(Reconnecting), do(endTerm, closeBackend, startGrace, resetRetry, emitError)},
	{Leader, lost, withoutGrace, again, do(endTerm, closeBackend, resetRetry, emitLost, emitError)},
	{Leader, stop, always, destination(Releasing), do(endTerm)},
	{Leader, stepDown, always, destination(Releasing), do(endTerm, emitError)}, // the error of a service that failed

	{Reconnecting, reacquired, always, destination(Leader), do(beginTerm, resetRetry, emitRecovered)},
	{Reconnecting, superseded, withReacquire, destination(Acquiring), do(emitLost)}, // Acquiring has already succeeded
	{Reconnecting, superseded, withoutReacquire, destination(Stopped), do(abandon, emitLost)},
	{Reconnecting, pending, always, destination(Reconnecting), nil},
	{Reconnecting, failed, always, destination(Reconnecting), do(abandon, closeBackend, backOff, emitError)},
	{Reconnecting, notReacquired, always, again, do(backOff, emitLost)},
	{Reconnecting, graceOver, always, again, do(abandon, closeBackend, backOff, emitLost)},
	{Reconnecting, exhausted, always, destination(Stopped), do(abandon, emitLost)},
	{Reconnecting, stop, always, destination(Stopped), do(abandon, emitLost)},
	{Reconnecting, stepDown, always, again, do(abandon, standAside, emitLost)},

	{Releasing, stop, always, destination(Releasing), nil},                        // from now on Releasing ends in Stopped
	{Releasing, released, always, again, do(standAside, emitReleased, emitError)}, // if work did not end
	{Releasing, releaseFailed, always, again, do(closeBackend, standAside, emitReleased, emitError)},
	{Releasing, lost, always, again, do(closeBackend, standAside, emitLost, emitError)},
}

func do(actions ...action) []action { return actions }

// A position is the complete state of the machine.
type position struct {
	State    State
	Stopping bool // Releasing ends in Stopped
}

// rules are the parts of a Config that the machine depends on.
type rules struct {
	grace     bool // ReconnectGrace is set
	reacquire bool // LeadOnce is not set
}

// step returns the transition for an input. It is a pure function. Callers must not change the actions.
func (m *machine) step(at position, in input, r rules) (position, []action) {
	t := &m[at.State][in][r.index()][index(at.Stopping || in == stop)]
	if !t.known {
		return at, nil
	}
	return t.to, t.actions
}

type transition struct {
	known   bool
	to      position
	actions []action
}

// A machine is a table, resolved for each set of rules and for stopping.
type machine [Releasing + 1][inputs][4][2]transition

var transitions = compile(table)

func compile(table []row) (compiled machine) {
	for _, row := range table {
		for _, r := range []rules{{}, {grace: true}, {reacquire: true}, {grace: true, reacquire: true}} {
			for _, stopping := range []bool{false, true} {
				if row.when.holds(r) {
					compiled[row.from][row.input][r.index()][index(stopping)] = row.resolve(r, stopping)
				}
			}
		}
	}
	return compiled
}

func (c condition) holds(r rules) bool {
	switch c {
	case withGrace:
		return r.grace
	case withoutGrace:
		return !r.grace
	case withReacquire:
		return r.reacquire
	case withoutReacquire:
		return !r.reacquire
	}
	return true
}

func (row row) resolve(r rules, stopping bool) transition {
	to := State(row.to)
	if row.to == again {
		to = Stopped
		if r.reacquire && !stopping {
			to = Follower
		}
	}
	t := transition{known: true, to: position{State: to, Stopping: stopping && to == Releasing}, actions: row.actions}
	if to == Stopped {
		t.actions = append(append([]action(nil), row.actions...), closeBackend, emitStopped)
	}
	return t
}

func (r rules) index() int { return index(r.grace) + 2*index(r.reacquire) }

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
