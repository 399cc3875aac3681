package lockmode

// A restriction names the only mode of a test, and why it has no other.
type restriction struct {
	mode Mode
	why  string
}

// onlyIn lists the tests of one mode only, by their names.
var onlyIn = map[string]restriction{
	"TestNestedLocksOnAFullPoolFailAtOnce": {Dedicated, "multiplexed, an inner lock needs no connection of its own"},
	"TestAFullPoolIsNotCalledAHeldLock":    {Dedicated, "multiplexed, a lock on another key needs no connection of its own"},
}
