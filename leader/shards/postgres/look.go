package postgres

import (
	"fmt"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
	"github.com/pglatch/pglatch/namespace"
)

// The kinds of orders.
const (
	pinOrder   = "pin"
	drainOrder = "drain"
)

// viewOf converts a group's view to identities. An owner that is not a member, such as somebody who took the
// lock by hand, appears with the pid of the session.
func viewOf(seen group.View) driver.View {
	v := driver.View{Version: seen.Version}
	if seen.Owners == nil {
		return v // the version was known
	}
	drained := map[string]bool{}
	v.Pins = map[string]string{}
	for _, order := range seen.Orders {
		switch kind, subject, identity := order[0], order[1], order[2]; kind {
		case pinOrder:
			v.Pins[subject] = identity
		case drainOrder:
			drained[subject] = true
		}
	}
	at, identities := map[string]int{}, make(map[uint32]string, len(seen.Members))
	for _, m := range seen.Members {
		identities[m.PID] = m.Identity
		member := driver.Member{Identity: m.Identity, Weight: m.Weight, List: m.List, Draining: m.Draining || drained[m.Identity], Refuses: m.Refuses}
		if i, ok := at[m.Identity]; ok {
			v.Members[i] = member // the last announcement counts
			continue
		}
		at[m.Identity] = len(v.Members)
		v.Members = append(v.Members, member)
	}
	v.Owners = make(map[string]string, len(seen.Owners))
	for name, owner := range seen.Owners {
		pid := owner.PID
		identity, ok := identities[pid]
		if !ok {
			identity = fmt.Sprintf("pid %d", pid)
			identities[pid] = identity
		}
		v.Owners[name] = identity
	}
	return v
}

// A Lock is a lock that the nodes of a group take.
type Lock struct {
	Tag  namespace.Tag
	Name string // "tenant/acme", "members of tenant=7"
	// Guard means that guarded transactions share the lock.
	Guard bool
}

// Locks names the locks of the group and of these shards, for tools that see only numbers. It does not connect.
func (b *Backend) Locks(shards []string) []Lock {
	g := b.group
	all := make([]Lock, 0, 1+2*len(shards))
	all = append(all, Lock{Tag: g.Member(), Name: membersKey(g)})
	for _, name := range shards {
		text := g.Namespace.Name() + "/" + name
		if key, err := g.Key(name); err == nil {
			all = append(all, Lock{Tag: g.TagOf(key), Name: text})
		}
		all = append(all, Lock{Tag: g.Guard(name), Name: text, Guard: true})
	}
	return all
}
