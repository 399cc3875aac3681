package driver

// A Member is a node of the group, as it announced itself.
type Member struct {
	Identity string
	// Weight determines the member's part of the shards: weight 200 gets twice as many as weight 100.
	Weight int
	// List is a digest of the names that the member knows. Members with the same List balance their
	// shards among themselves.
	List uint64
	// Draining means that the member gives up its shards as soon as another member can take them,
	// and claims nothing.
	Draining bool
	// Refuses announces the shards that the member cannot claim now, so that no node assigns them to
	// it. It is printable text of at most 2,175 bytes, which only nodes interpret. "" = none.
	Refuses string
}

// A View is a snapshot of all nodes. It is a hint: safety never depends on it.
type View struct {
	// If Version is the same in two Views of one Session, the other fields are the same too. 0 = not known.
	Version uint64
	// Members is in any order, with each identity once. The node itself is among them.
	Members []Member
	// Owners maps each shard to its owner's identity. It does not contain free shards.
	Owners map[string]string
	// Pins maps each pinned shard to the identity of the member that should own it.
	Pins map[string]string
}

// An Observation is an Observer's snapshot.
type Observation struct {
	// View is like the View that a session's Look returns, except that its Version is 0, and that Owners has
	// the shards of all lists.
	View
	// Terms has the last term of each shard that is or ever was owned, as far as the
	// backend knows. Terms never go back, so the backend keeps them after the owner is
	// gone. If a shard is in Terms, but not in Owners, it is free now, and may be in no
	// node's list any more.
	Terms map[string]Term
	// Drained lists the identities that an Operator's Drain named, sorted, including nodes that are absent
	// now. It does not include a member that announced on its own that it drains.
	Drained []string
}
