package driver

// A Member is a node that takes part, as it announced itself.
type Member struct {
	Identity string
	// Weight is its part of the shards: a member of 200 gets twice as many as one of 100.
	Weight int
	// List is a digest of the names that it knows: members of one List even out their shards
	// among themselves.
	List uint64
	// Draining: it gives up what it owns, as soon as another can take it, and claims nothing.
	Draining bool
	// Refuses says which shards it cannot claim now, so that nobody gives it these: printable text of 2,175 bytes at most, which
	// only nodes understand. "" = none.
	Refuses string
}

// A View is what was seen of all nodes at one moment. It is a hint: nothing that matters for
// safety rests on it.
type View struct {
	// Version is the same in two Views of one Session only if the rest of them is. 0 = the session does not know.
	Version uint64
	// Members in any order, each identity once. The node itself is among them.
	Members []Member
	// Owners has the identity of each shard's owner. A shard that nobody owns is not in it.
	Owners map[string]string
	// Pins has the identity of the member that is to own a shard.
	Pins map[string]string
}

// An Observation is what an Observer sees at one moment.
type Observation struct {
	// View as a session's Look returns it, but that its Version is 0 and that Owners has the shards of
	// all lists.
	View
	// Terms has the last term of each shard that is owned or ever was, as far as the backend
	// knows: terms rise for good, so it keeps them when the owner is gone. A shard in Terms and not in
	// Owners is one that nobody owns now. It may be in no node's list any more.
	Terms map[string]Term
	// Drained are the identities that an Operator's Drain named, sorted, also of nodes that take no
	// part now. A member that drains because it said so itself is not among them.
	Drained []string
}
