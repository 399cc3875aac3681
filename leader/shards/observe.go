package shards

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/internal/plan"
)

// A Group is a snapshot of all nodes and shards, made by an observer that is not a node. It is for people,
// and may already be out of date.
type Group struct {
	// Members lists, by identity, the nodes that take part. It also lists absent nodes that are
	// drained, own a shard, or have a shard pinned to them.
	Members []Member
	// Shards lists the shards by name, both owned and free. If the snapshot is not Certain, they include
	// shards that were once in a list and are in no list any more.
	Shards []Seen
	// Certain means that all members have the same list, and that Shards has exactly the shards of that list.
	// If it is false, a listed shard that nobody has owned yet may be missing. A free shard may also be in no
	// list any more.
	Certain bool
	// Pins maps each pinned shard to an identity, including shards that are not in Shards.
	Pins map[string]string
}

// A Member is a node of a Group.
type Member struct {
	driver.Member      // if it is away, all fields except Identity are zero
	Away          bool // takes no part now
	Drained       bool // drained by an Operator; it drains as soon as it takes part
	Owned         int  // number of shards that it owns
	Fair          int  // number of shards that it should own in the end: its part by weight, pins included
}

// A Seen is a shard of a Group.
type Seen struct {
	Name  string
	Owner string      // the owner's identity; "" = nobody
	Term  leader.Term // the last term; zero = not known
	Pin   string      // identity of the node that it is pinned to; "" = none
}

// Observe returns a snapshot of a group. It does not become a member. The error is the backend's.
func Observe(ctx context.Context, o driver.Observer) (Group, error) {
	seen, err := o.Observe(ctx)
	if err != nil {
		return Group{}, fmt.Errorf("shards: looking: %w", err)
	}
	return newGroup(seen), nil
}

// Owned returns the number of owned shards.
func (g Group) Owned() (n int) {
	for _, s := range g.Shards {
		if s.Owner != "" {
			n++
		}
	}
	return n
}

func newGroup(o driver.Observation) Group {
	names, certain := listed(o)
	list := plan.NewShards(names)
	view := list.View(o.View)
	g := Group{Certain: certain, Pins: o.Pins, Shards: make([]Seen, len(list.Names))}
	members := map[string]*Member{}
	for i, fair := range plan.Fair(list, view) {
		members[view.Members[i].Identity] = &Member{Member: view.Members[i], Fair: fair}
	}
	member := func(identity string) *Member {
		if members[identity] == nil {
			members[identity] = &Member{Member: driver.Member{Identity: identity}, Away: true}
		}
		return members[identity]
	}
	for i, name := range list.Names {
		s := Seen{Name: name, Owner: o.Owners[name], Term: o.Terms[name], Pin: o.Pins[name]}
		if g.Shards[i] = s; s.Owner != "" {
			member(s.Owner).Owned++
		}
	}
	for _, identity := range o.Pins {
		member(identity)
	}
	for _, identity := range o.Drained {
		member(identity).Drained = true
	}
	for _, identity := range slices.Sorted(maps.Keys(members)) {
		g.Members = append(g.Members, *members[identity])
	}
	return g
}

// listed returns the names of the existing shards, and whether they are exactly the list that all members
// have. An observer has only the digest of that list. If no shard is missing, the names have the same digest.
func listed(o driver.Observation) (names []string, certain bool) {
	owned := slices.Collect(maps.Keys(o.Owners))
	known := slices.AppendSeq(slices.Clone(owned), maps.Keys(o.Terms))
	for _, m := range o.Members {
		if m.List != o.Members[0].List {
			return known, false
		}
	}
	if len(o.Members) == 0 {
		return known, false
	}
	if plan.NewShards(owned).Digest == o.Members[0].List {
		return owned, true
	}
	return known, plan.NewShards(known).Digest == o.Members[0].List
}
