package driver

// A Member is a node that takes part, as it announced itself.
type Member struct {
	Identity string
	// Weight determines its part of the shards: a member of weight 200 gets twice as many as one of 100.
	Weight int
	// List is a digest of the names that it knows. Members with the same List even out their shards among
	// themselves.
	List uint64
	// Draining means that it gives up its shards as soon as another member can take them, and claims nothing.
	Draining bool
	// Refuses announces the shards that it cannot claim now, so that no node assigns them to it. It is
	// printable text of at most 2,175 bytes, which only nodes interpret. "" = none.
	Refuses string
}

// A View is a snapshot of all nodes. It is a hint: safety never depends on it.
type View struct {
	// Version is the same in two Views of one Session only if the other fields are. 0 = the session does not
	// know.
	Version uint64
	// Members in any order, each identity once. The node itself is among them.
	Members []Member
	// Owners maps each shard to its owner's identity. It does not contain free shards.
	Owners map[string]string
	// Pins maps each pinned shard to the identity of the member that should own it.
	Pins map[string]string
}

// An Observation is an Observer's snapshot.
type Observation struct {
	// View is as a session's Look returns it, except that its Version is 0 and that Owners has the shards of
	// all lists.
	View
	// Terms has the last term of each shard that is or ever was owned, as far as the
	// backend knows. Terms never go back, so the backend keeps them after the owner is
	// gone. A shard in Terms and not in Owners is free now. It may be in no node's list
	// any more.
	Terms map[string]Term
	// Drained are the identities that an Operator's Drain named, sorted, including nodes that take no part
	// now. It does not include a member that drains on its own announcement.
	Drained []string
}
