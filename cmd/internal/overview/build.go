package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A builder makes the rows of a Picture, in the words of the processes.
type builder struct {
	*incident.Picture

	locks []monitor.Lock
	texts map[namespace.Tag]string // of the locks
	names map[namespace.Tag]string // by the processes and the user
	rows  []*Row
	rowOf map[*incident.Key]*Row
}

// Of builds the rows from PostgreSQL's data and the processes' answers, in the order of the snapshot. known
// are keys that the user named: their semaphores are found even if no process answers.
func Of(s monitor.Snapshot, known ...namespace.Key) []*Row {
	b := builder{locks: s.Locks, texts: map[namespace.Tag]string{}, names: map[namespace.Tag]string{}, rowOf: map[*incident.Key]*Row{}}
	for i := range s.Answers.Answers {
		for text, tag := range keys(&s.Answers.Answers[i]) {
			b.name(text, tag)
		}
	}
	for _, k := range known {
		b.name(k.String(), k.Tag())
	}
	for i := range s.Locks {
		b.texts[s.Locks[i].Tag] = s.Locks[i].Key.Text
	}
	b.Picture = incident.Build(input(s, known))
	for _, k := range b.Keys {
		if k.Main != nil {
			continue
		}
		r := b.row(k)
		for _, h := range k.Holders {
			r.Holders = append(r.Holders, b.holder(h))
		}
		for _, w := range k.Waiters {
			r.Waiters = append(r.Waiters, b.waiter(w))
		}
	}
	b.addCandidates()
	for i := range s.Locks {
		if r := b.row(b.Key(s.Locks[i].Tag)); !slices.Contains(r.Tags, s.Locks[i].Tag) {
			r.Tags = append(r.Tags, s.Locks[i].Tag)
		}
	}
	rows := slices.DeleteFunc(b.rows, func(r *Row) bool { return len(r.Holders)+len(r.Waiters) == 0 })
	for _, r := range rows {
		slices.SortStableFunc(r.Waiters, func(p, o Party) int { return int(o.Age/time.Millisecond) - int(p.Age/time.Millisecond) })
	}
	return rows
}

// input returns the input of the Picture of a Snapshot.
func input(s monitor.Snapshot, known []namespace.Key) incident.Input {
	in := incident.Input{At: s.Server.Now, Answers: s.Answers.Answers, Known: known}
	for _, q := range s.Answers.Silent {
		in.Silent = append(in.Silent, incident.Silent{Silent: q})
	}
	if s.Fleet != nil {
		in.Locks = s.Fleet.Locks
	}
	for i := range s.Locks {
		l, p := &s.Locks[i], PartyOf(s.Locks[i])
		r := incident.Row{
			Session: incident.Session{PID: l.PID, Name: l.ApplicationName}, Tag: l.Tag, Text: l.Key.Text, Shared: p.Shared, Granted: l.Granted, Age: p.Age,
		}
		if l.Namespace != nil && l.EntityID == nil {
			r.Namespace = *l.Namespace
		}
		in.Rows = append(in.Rows, r)
	}
	return in
}

// name records a name of a key. The first one counts that has its entity. A number is no name: the viewer may know one.
func (b *builder) name(text string, tag namespace.Tag) {
	if known := b.names[tag]; (known == "" || incident.Hidden(known)) && text != tag.String() {
		b.names[tag] = text
	}
}

// row returns the row of a key, and creates it if necessary. All locks of an election have the row of its main key.
func (b *builder) row(k *incident.Key) *Row {
	if k.Main != nil {
		k = k.Main
	}
	r := b.rowOf[k]
	if r == nil {
		r = &Row{Key: cmp.Or(b.names[k.Tag], k.Text), Kind: Kind(k.Kind), Tag: k.Tag, Slots: k.Slots, Holders: []Party{}, Waiters: []Party{}}
		switch k.Kind {
		case incident.MailboxLock:
			r.Kind = Mailbox
		case incident.Leading:
			r.Key = cmp.Or(b.names[k.Tag], b.texts[k.Tag], k.Tag.String()) // Text names the election
		}
		if r.Key == k.Tag.String() {
			r.namespace = k.Namespace
		}
		b.rows, b.rowOf[k] = append(b.rows, r), r
	}
	return r
}

// PartyOf returns one session, as PostgreSQL shows it.
func PartyOf(l monitor.Lock) Party {
	p := Party{
		Name: l.ApplicationName, PID: l.PID, Shared: l.Mode == "ShareLock", Session: l.BackendStart,
		Age: time.Duration(l.Duration * float64(time.Second)),
	}
	if l.State != nil {
		p.State = *l.State
	}
	return p
}

// session returns the session of a lock, with the name of the process that owns it.
func (b *builder) session(l monitor.Lock) Party {
	p := PartyOf(l)
	if owner, service := b.Owner(l.PID); owner != nil {
		p.is(owner.Told.As(service))
	} else {
		p.Silent = l.Silent
	}
	return p
}

// is names the process of a party.
func (p *Party) is(process introspect.Process) { p.Name, p.Process = ProcessName(process), &process }

func (b *builder) holder(h *incident.Holder) Party {
	p := b.session(b.locks[h.Row])
	if l := h.Told; l != nil {
		p.is(h.Process.Told.As(l.Service))
		p.Age, p.Exact, p.Label, p.Note = h.Age, true, l.Label, notes(h)
	}
	return p
}

func (b *builder) waiter(w *incident.Waiter) Party {
	if w.Told == nil {
		return b.session(b.locks[w.Row])
	}
	p := Party{PID: w.PID, Shared: w.Shared, Age: w.Age, Exact: true, Label: w.Told.Label, Left: w.Left}
	p.is(w.Process.Told.As(w.Told.Service))
	return p
}

func notes(h *incident.Holder) string {
	var all []string
	if h.Asked {
		all = append(all, "asked to release")
	}
	if h.Doubtful {
		all = append(all, "its server did not answer in time")
	}
	if h.Told.HandOvers > 0 {
		all = append(all, fmt.Sprintf("handed over %d times in the process", h.Told.HandOvers))
	}
	if h.Beside > 0 {
		all = append(all, fmt.Sprintf("%d other keys on its session", h.Beside))
	}
	return strings.Join(all, ", ")
}

// addCandidates adds the candidates of elections, of which PostgreSQL knows only the leader. Then it adds the holders
// of an election's other locks that do not lead.
func (b *builder) addCandidates() {
	for _, e := range b.Elections {
		for _, m := range e.Members {
			if e.Tag.Valid() && m.Told.State != "stopped" {
				b.row(b.Key(e.Tag)).stands(m.Told, m.Process.Told.As(m.Told.Service))
			}
		}
	}
	for _, k := range b.Keys {
		for _, h := range k.Holders {
			r := b.row(k)
			if _, leads := r.Session(h.PID, true); leads || k.Main == nil {
				continue
			}
			p := b.holder(h)
			if p.Note = "the lock of an earlier term"; p.Shared {
				p.Note = "a guarded transaction"
			}
			r.Holders = append(r.Holders, p)
		}
	}
}

// stands adds a candidate: it leads, or waits.
func (r *Row) stands(e *introspect.Election, process introspect.Process) {
	note := "node " + e.Node + ", " + e.State
	if e.StandsBack {
		note += ", stands back"
	}
	if e.Term != "" {
		note += ", term " + e.Term
	}
	if e.Error != "" {
		note += ", last attempt failed: " + e.Error
	}
	its := func(p Party) bool { return e.Session != 0 && p.PID == e.Session }
	p := &Party{PID: e.Session}
	if i := slices.IndexFunc(r.Holders, its); i >= 0 {
		p = &r.Holders[i]
	} else {
		r.Waiters = append(slices.DeleteFunc(r.Waiters, its), *p)
		p = &r.Waiters[len(r.Waiters)-1]
	}
	p.is(process)
	p.Age, p.Exact, p.Note = e.Age, true, note
}
