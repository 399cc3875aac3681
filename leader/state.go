package leader

// A State is a node's state in its election.
type State uint8

// The states of an Elector. The node leads only in the state Leader.
const (
	Stopped      State = iota // not started, or ended: holds nothing, runs nothing
	Follower                  // waits for its next attempt
	Acquiring                 // an attempt is under way
	Leader                    // holds leadership and renews it
	Reconnecting              // lost leadership and tries to recover it within ReconnectGrace
	Releasing                 // gives up leadership: work ends first
)

var stateNames = [...]string{"stopped", "follower", "acquiring", "leader", "reconnecting", "releasing"}

func (s State) String() string { return stateNames[s] }
