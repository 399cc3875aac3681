package incident

import "github.com/pglatch/pglatch/monitor/fleet"

// groupShards records which sessions carry shards, and names the locks that the members of each group
// share.
func (b *builder) groupShards(all []said) {
	for _, s := range all {
		for _, g := range s.answer.Groups {
			b.carriers[g.Session] = g
			if s.process.Silent {
				b.out.Hung[[2]string{quote(g.Name), quote(g.Node)}] = s.process
			}
			k := b.key(g.Members, "members of "+g.Name, "", true)
			k.Kind, k.Text, k.Group = Shard, quote("members of "+g.Name), quote(g.Name)
		}
	}
}

// shardHolders names the holders of shards, including shards that did not fit into their answers.
func (b *builder) shardHolders() {
	for _, k := range b.out.Keys {
		number, numbered := k.Tag.NamespaceNumber()
		for _, h := range k.Holders {
			c, carries := b.carriers[h.PID]
			if !carries || k.Kind != Shard && (!numbered || number != c.Number) {
				continue
			}
			k.Kind, k.Group, h.Node = Shard, quote(c.Name), quote(c.Node)
			if h.Process == nil {
				h.Process, h.Service = b.out.Owner(h.PID)
			}
		}
	}
}

// The kinds of keys that only tables know.
const (
	guardKey Kind = "guard" // that guarded transactions share
	tickKey  Kind = "tick"  // that excludes other claims of a tick
)

// tabled sets the uses of keys that tables know. What a process said comes first.
func (b *builder) tabled() {
	kinds := map[fleet.Kind]Kind{fleet.ShardLock: Shard, fleet.GuardLock: guardKey, fleet.TickLock: tickKey, fleet.NodeLock: MailboxLock}
	for _, k := range b.out.Keys {
		if t, ok := b.in.Locks[k.Tag]; ok && k.Kind == Mutex {
			k.Kind, k.Group = kinds[t.Kind], quote(t.Group)
		}
	}
}

// NodeStates describes a node of a group of shards that does not simply take part.
func NodeStates(away, drained, draining bool) (all []string) {
	if away {
		all = append(all, "away")
	}
	switch {
	case drained && away:
		all = append(all, "drained")
	case drained || draining:
		all = append(all, "draining")
	}
	return all
}
