package incident

import (
	"maps"
	"slices"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// groupElections combines the answers of each election's candidates.
func (b *builder) groupElections(all []said) {
	byID := map[string]*Election{}
	for _, s := range all {
		for i := range s.answer.Elections {
			a := &s.answer.Elections[i]
			e := b.election(byID, a)
			m := Member{
				Process: s.process, Told: a, Service: s.service(a.Service), Name: quote(a.Name), Node: quote(a.Node), State: quote(a.State), Age: a.Age + s.lag, Lease: a.Lease, Leader: quote(a.Leader), Term: quote(a.Term), Err: legible.Quote(a.Error, 4*mostShown), Session: a.Session,
			}
			for _, h := range a.HandOvers {
				m.HandOvers = append(m.HandOvers, HandOver{h.Age + s.lag, quote(h.Node), quote(h.Term)})
			}
			e.Members = append(e.Members, m)
		}
	}
	for _, e := range b.out.Elections {
		for _, m := range e.Members {
			if m.Name != "" && !slices.Contains(e.Names, m.Name) {
				e.Names = append(e.Names, m.Name)
			}
		}
		slices.Sort(e.Names)
		e.Name = list(e.Names)
		for i, k := range e.keys {
			k.Kind, k.Text = Leading, e.Key
			if i > 0 {
				k.Main, k.Text = e.keys[0], k.Text+" (second lock)"
			}
			if e.Name != "" {
				k.Text = e.Name + " (" + k.Text + ")"
			}
		}
	}
}

func (b *builder) election(byID map[string]*Election, a *introspect.Election) *Election {
	var tag namespace.Tag
	id := "name/" + a.Name + "/" + a.Key
	if len(a.Tags) > 0 {
		tag, id = a.Tags[0], a.Tags[0].String()
	}
	e := byID[id]
	if e == nil {
		e = &Election{ID: id, Name: quote(a.Name), Key: quote(a.Key), Tag: tag, class: a.Class}
		if tag.Valid() {
			e.ID = b.in.ID(tag)
			e.Key, _ = b.in.Text(tag, a.Key)
		}
		byID[id] = e
		b.out.Elections = append(b.out.Elections, e)
	}
	for _, t := range a.Tags { // only the leader knows the lock of its term
		text, shown := b.in.Text(t, a.Key)
		if k := b.key(t, text, namespaceOf(a.Key), shown); !slices.Contains(e.keys, k) {
			e.keys = append(e.keys, k)
		}
	}
	return e
}

func (b *builder) electionHolders() {
	for _, e := range b.out.Elections {
		k := b.keys[e.Tag]
		if k == nil || len(k.Holders) == 0 {
			continue
		}
		e.Holder = k.Holders[0]
		for _, m := range e.Members {
			if e.Holder.Process == nil && m.Session == e.Holder.PID && m.Session != 0 {
				e.Holder.Process, e.Holder.Service, e.Holder.Age, e.Holder.Exact = m.Process, m.Service, m.Age, m.State == "leader"
			}
		}
	}
	b.guards()
	for _, k := range b.out.Keys { // a follower in the queue is not a stranger
		if k.Kind != Leading {
			continue
		}
		for _, w := range k.Waiters {
			if w.Process == nil {
				w.Process, w.Service = b.out.Owner(w.PID)
			}
		}
		for _, h := range k.Holders {
			if h.Process == nil {
				h.Process, h.Service = b.out.Owner(h.PID)
			}
		}
	}
}

// guards names the further locks of elections: by the class that the candidates report, or that the deciding lock has.
// No candidate of an election need answer.
func (b *builder) guards() {
	ours := func(k *Key) bool {
		return k.Kind == Mutex && k.Tag.ClassID>>31 == 1 && k.Tag.ObjSubID == namespace.SingleForm
	}
	if !slices.ContainsFunc(b.out.Keys, ours) {
		return
	}
	names, mains := map[uint32]string{}, map[uint32]*Key{}
	guards := map[namespace.Tag]bool{}
	for _, k := range b.out.Keys {
		if k.Kind != Semaphore && (k.Tag.ClassID>>31 == 0 || k.Tag.ObjSubID == namespace.PairForm) {
			companions := electionkeys.Of(k.Tag)
			names[companions.ClassID()], mains[companions.ClassID()] = k.Text, k
			guards[companions.Guard()] = true
		}
	}
	for _, e := range b.out.Elections {
		if e.class != 0 {
			names[e.class], mains[e.class] = e.Name, b.keys[e.Tag]
		}
		if e.Tag.Valid() {
			guards[electionkeys.Of(e.Tag).Guard()] = true
		}
	}
	for _, k := range b.out.Keys {
		name, ok := names[k.Tag.ClassID]
		if !ok || !ours(k) {
			continue
		}
		if k.Kind, k.Text = Leading, name+" (incarnation)"; guards[k.Tag] {
			k.Text = name + " (guard)"
		}
		if k.Main = mains[k.Tag.ClassID]; k.Main != nil && k.Main.Kind == Mutex {
			k.Main.Kind = Leading
		}
	}
}

// clashes finds numbers with two names.
func (b *builder) clashes(all []said) {
	names := map[int]map[string]string{} // number, name, users of it
	note := func(n int, name, who string) {
		if names[n] == nil {
			names[n] = map[string]string{}
		}
		if names[n][name] == "" {
			names[n][name] = who
		}
	}
	for n, name := range b.in.Namespaces {
		note(n, name, "this monitor")
	}
	for _, s := range all {
		elections := map[namespace.Tag]bool{}
		for _, e := range s.answer.Elections {
			for _, t := range e.Tags {
				elections[t] = true
			}
		}
		see := func(tag namespace.Tag, text, service string) {
			if n, ok := tag.NamespaceNumber(); ok && namespaceOf(text) != "" && !elections[tag] {
				note(n, quote(namespaceOf(text)), s.process.part(s.service(service)))
			}
		}
		for _, l := range s.answer.Locks {
			see(l.Tag, l.Key, l.Service)
		}
		for _, w := range s.answer.Waits {
			see(w.Tag, w.Key, w.Service)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if len(names[n]) < 2 {
			continue
		}
		c := Clash{Number: n, Names: slices.Sorted(maps.Keys(names[n]))}
		for _, name := range c.Names {
			c.Whose = append(c.Whose, names[n][name])
		}
		b.out.Clashes = append(b.out.Clashes, c)
	}
}
