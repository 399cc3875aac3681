package leader

// A State is where a node stands in its election.
type State uint8

// The states of an Elector. Only in Leader does it lead.
const (
	Stopped      State = iota // not started, or ended; nothing is held and nothing runs
	Follower                  // waits for its next attempt
	Acquiring                 // an attempt is under way
	Leader                    // holds leadership and renews it
	Reconnecting              // lost leadership, and tries for a while to recover it
	Releasing                 // gives leadership up: work ends first
)

var stateNames = [...]string{"stopped", "follower", "acquiring", "leader", "reconnecting", "releasing"}

func (s State) String() string { return stateNames[s] }
