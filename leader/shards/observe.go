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

// A Group is what was to be seen of all nodes at one moment, by who takes no part. It is for
// people: what it says may be over by then.
type Group struct {
	// Members by identity: who takes part, and who is away and yet drained, pinned to, or an owner.
	Members []Member
	// Shards that are owned, and those that nobody owns, by name. What was in a list once and is in
	// none any more is among them as long as it is not Certain.
	Shards []Seen
	// Certain: all members have one list, and Shards are exactly those of it. If not, a shard of a list may be missing that
	// nobody has owned yet, or one that nobody owns may be in no list any more.
	Certain bool
	// Pins has the identity of each shard that is pinned, also of those that are not in Shards.
	Pins map[string]string
}

// A Member is a node of a Group.
type Member struct {
	driver.Member      // all but the Identity is zero if it is away
	Away          bool // it takes no part now
	Drained       bool // Drain of a Node or Operator said so; it drains as soon as it takes part
	Owned         int  // shards
	Fair          int  // how many it is to own when all has settled: its part by weight, pins included
}

// A Seen is a shard of a Group.
type Seen struct {
	Name  string
	Owner string      // its identity; "" = nobody
	Term  leader.Term // the last; zero = not known
	Pin   string      // the identity of the node that is to own it; "" = none
}

// Observe looks at a group without taking part. The error is the backend's.
func Observe(ctx context.Context, o driver.Observer) (Group, error) {
	seen, err := o.Observe(ctx)
	if err != nil {
		return Group{}, fmt.Errorf("shards: looking: %w", err)
	}
	return newGroup(seen), nil
}

// Owned counts the shards that somebody owns.
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

// listed returns the names of the shards that there are, and whether they are exactly those of the
// list that all members have. An observer has only its digest: that of what is owned is the same if nothing is missing.
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
