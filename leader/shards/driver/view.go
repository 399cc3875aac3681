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
