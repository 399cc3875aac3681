package incident

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// A Row is a row of pg_locks: a session's hold of, or wait for, a key.
type Row struct {
	Session
	Tag             namespace.Tag
	Text, Namespace string
	Shown           bool
	Shared, Granted bool
	Age             time.Duration
	SilentBy        uint32 // the listening session of the silent process that owns the session; 0 = none
}

// An Input is the input of a Picture.
type Input struct {
	At      time.Time
	Rows    []Row // in the order of the keys, and of each key's queue
	Answers []introspect.Answer
	Asked   time.Time // when the answers had arrived
	// Silent are the processes that did not answer, with their last answers, if any.
	Silent []Silent
	// Names are the application_names of the listening sessions.
	Names map[uint32]string
	// Text returns the displayed form of a key that a process calls text. nil = unchanged.
	Text func(tag namespace.Tag, text string) (shown string, whole bool)
	// ID identifies a key. nil = its text.
	ID func(tag namespace.Tag) string
	// HideLabels omits the labels.
	HideLabels bool
	// Namespaces are the namespaces that the viewer has names for.
	Namespaces map[int]string
	Mailboxes  []Mailbox
	Server     Server
	// Known are keys that the viewer named: their semaphores are found even if no process answers.
	Known []namespace.Key
	// Locks are the uses of locks that tables name.
	Locks map[namespace.Tag]fleet.Lock
}

// A Silent is a process that did not answer.
type Silent struct {
	introspect.Silent
	Last       *introspect.Answer // nil = it never answered us
	Spoke      time.Time
	Unanswered int // questions since its last answer
}

// A spot is a session's place at a lock.
type spot struct {
	pid uint32
	tag namespace.Tag
}

// A builder builds a Picture.
type builder struct {
	in     *Input
	out    *Picture
	keys   map[namespace.Tag]*Key // a semaphore by the tags of all its known slots, and by its turnstile's
	holds  map[spot]*Holder
	rows   map[spot]int // waits at the server
	semas  map[string]*Key
	served map[*Process]map[namespace.Tag]bool // the keys that it says it waits for

	carriers map[uint32]introspect.Group // of shards, by their sessions
}

// Build builds a Picture.
func Build(in Input) *Picture {
	if in.Text == nil {
		in.Text = func(_ namespace.Tag, text string) (string, bool) { return text, true }
	}
	if in.ID == nil {
		in.ID = namespace.Tag.String
	}
	said := in.Text
	in.Text = func(tag namespace.Tag, text string) (string, bool) {
		shown, whole := said(tag, text)
		return quote(shown), whole
	}
	b := &builder{
		in: &in, out: &Picture{At: in.At, Server: in.Server, Hung: map[[2]string]*Process{}, owners: map[uint32]owner{}}, keys: map[namespace.Tag]*Key{}, holds: map[spot]*Holder{}, rows: map[spot]int{},
		semas: map[string]*Key{}, served: map[*Process]map[namespace.Tag]bool{}, carriers: map[uint32]introspect.Group{},
	}
	if in.Asked.IsZero() {
		in.Asked = in.At
	}
	all := b.processes()
	for _, s := range all {
		b.own(s)
	}
	b.groupSemaphores(all)
	b.groupElections(all)
	b.groupShards(all)
	for i, r := range in.Rows {
		b.row(i, &r)
	}
	for _, s := range all {
		b.holdsOf(s)
	}
	b.shardHolders()
	b.tabled()
	b.adoptForSilent()
	for _, s := range all {
		b.waitsOf(s)
	}
	b.strangers()
	b.order()
	b.electionHolders()
	b.clashes(all)
	b.addMailboxes()
	b.out.keys, b.out.Cycles = b.keys, cycles(b.out)
	return b.out
}

// A said is the current or last answer of a process.
type said struct {
	process *Process
	answer  *introspect.Answer
	lag     time.Duration // since the answer
}

func (b *builder) processes() (all []said) {
	add := func(a *introspect.Answer, p Process) {
		p.Told = &a.Process
		p.ID, p.Service, p.Version, p.Host, p.PID, p.Age = a.Process.ID, quote(a.Process.Service), quote(a.Process.Version), quote(a.Process.Host), a.Process.PID, a.Process.Age
		p.Several = several(a)
		p.Holds, p.Waits, p.Complete = a.AllLocks, a.AllWaits, a.AllLocks == len(a.Locks)
		p.Name = cmp.Or(b.in.Names[p.Listener], p.Name, p.Service+"@"+p.Host)
		all = append(all, said{&p, a, max(0, b.in.At.Sub(p.LastSpoke))})
		b.out.Processes = append(b.out.Processes, all[len(all)-1].process)
	}
	for i := range b.in.Answers {
		a := &b.in.Answers[i]
		// The clock was read at some time between the question and the answer.
		add(a, Process{Listener: a.Session, LastSpoke: b.in.Asked, Clock: a.Process.Clock.Sub(b.in.Asked), ClockError: a.Took})
	}
	for _, s := range b.in.Silent {
		p := Process{Listener: s.Session, Silent: true, unanswered: s.Unanswered, LastSpoke: s.Spoke, Name: s.ApplicationName}
		if s.Last != nil {
			add(s.Last, p)
			continue
		}
		p.Name = cmp.Or(p.Name, "the process of session "+number(p.Listener))
		p.ID = number(p.Listener)
		b.out.Processes = append(b.out.Processes, &p)
	}
	named := map[string]int{}
	for _, p := range b.out.Processes {
		named[p.Name]++
	}
	for _, p := range b.out.Processes {
		if named[p.Name] > 1 && p.PID > 0 {
			p.Name += " #" + strconv.Itoa(p.PID)
		}
	}
	return all
}

// several reports whether the parts of a process are of several services.
func several(a *introspect.Answer) bool {
	return slices.ContainsFunc(a.Locks, func(l introspect.Lock) bool { return l.Service != "" }) ||
		slices.ContainsFunc(a.Waits, func(w introspect.Wait) bool { return w.Service != "" }) ||
		slices.ContainsFunc(a.Elections, func(e introspect.Election) bool { return e.Service != "" }) ||
		slices.ContainsFunc(a.Groups, func(g introspect.Group) bool { return g.Service != "" })
}

// own records the sessions that a process reported.
func (b *builder) own(s said) {
	owns := func(session uint32, service string) { b.out.owners[session] = owner{s.process, s.service(service)} }
	for i := range s.answer.Locks {
		owns(s.answer.Locks[i].Session, s.answer.Locks[i].Service)
	}
	for _, g := range s.answer.Groups {
		owns(g.Session, g.Service)
	}
	for i := range s.answer.Waits {
		owns(s.answer.Waits[i].Session, s.answer.Waits[i].Service)
	}
	for i := range s.answer.Elections {
		owns(s.answer.Elections[i].Session, s.answer.Elections[i].Service)
	}
	delete(b.out.owners, 0) // no session
}

// service returns the service of a part of the process. A process whose parts are all of one service names it once.
func (s said) service(part string) string { return quote(cmp.Or(part, s.answer.Process.Service)) }

// key returns the key of a tag, and creates it if necessary.
func (b *builder) key(tag namespace.Tag, text, ns string, shown bool) *Key {
	k := b.keys[tag]
	if k == nil {
		k = &Key{Tag: tag, ID: b.in.ID(tag), Text: quote(text), Namespace: ns, Kind: Mutex, Shown: shown}
		k.Quoted = k.Text != text
		b.keys[tag] = k
		b.out.Keys = append(b.out.Keys, k)
	}
	return k
}

func (b *builder) row(i int, r *Row) {
	k := b.key(r.Tag, r.Text, r.Namespace, r.Shown)
	if !r.Granted || r.Tag == k.gate {
		b.rows[spot{r.PID, r.Tag}] = i
		return
	}
	h := &Holder{Session: r.Session, Tag: r.Tag, Row: i, Prepared: r.PID == 0, Shared: r.Shared, Age: r.Age, Count: 1}
	k.Holders = append(k.Holders, h)
	b.holds[spot{r.PID, r.Tag}] = h
}

// holdsOf adds the data from a process's answer to the holders of its locks.
func (b *builder) holdsOf(s said) {
	for i := range s.answer.Locks {
		l := &s.answer.Locks[i]
		h := b.holds[spot{l.Session, l.Tag}]
		if h == nil {
			if !s.process.Silent {
				text, _ := b.in.Text(l.Tag, l.Key)
				b.out.Unseen = append(b.out.Unseen, Unseen{Process: s.process, Text: text, KeyID: b.in.ID(l.Tag), PID: l.Session, Age: l.Age + s.lag})
			}
			continue
		}
		age := l.Age + s.lag
		if h.Process == s.process {
			h.Count++
			h.Age = max(h.Age, age)
		} else {
			h.Process, h.Service, h.Age, h.Exact = s.process, s.service(l.Service), age, true
		}
		h.Told, h.Beside, h.Doubtful, h.Asked = l, l.Beside, h.Doubtful || l.Doubtful, h.Asked || l.Asked
		if l.Label != "" && !b.in.HideLabels {
			h.Labels = append(h.Labels, quote(l.Label))
		}
		if k := b.keys[l.Tag]; k != nil {
			k.HandOvers += l.HandOvers
		}
	}
}

// adoptForSilent assigns holders that no process reported to the silent processes that own their
// sessions.
func (b *builder) adoptForSilent() {
	silent := map[uint32]*Process{}
	for _, p := range b.out.Processes {
		if p.Silent {
			silent[p.Listener] = p
		}
	}
	for _, r := range b.in.Rows {
		if h := b.holds[spot{r.PID, r.Tag}]; h != nil && h.Process == nil && r.SilentBy != 0 {
			h.Process = silent[r.SilentBy]
		}
	}
}

// waitsOf adds a process's waits to their keys. The current waits of a silent process are unknown.
func (b *builder) waitsOf(s said) {
	b.served[s.process] = map[namespace.Tag]bool{}
	for i := range s.answer.Waits {
		a := &s.answer.Waits[i]
		tags := []namespace.Tag{a.Tag}
		var k *Key
		if a.Semaphore {
			k = b.semaphore(a.Key, a.Tag)
			tags = append(slices.Clone(a.Slots), k.gate)
		}
		for _, t := range tags {
			b.served[s.process][t] = true
		}
		if s.process.Silent {
			continue
		}
		if k == nil {
			text, shown := b.in.Text(a.Tag, a.Key)
			k = b.key(a.Tag, text, namespaceOf(a.Key), shown)
		}
		w := &Waiter{
			Session: Session{PID: a.Session}, Told: a, Tag: a.Tag, Process: s.process, Service: s.service(a.Service), Shared: a.Shared, Age: a.Age + s.lag, Left: a.Left, Label: quote(a.Label),
			Ahead: a.Ahead, Holds: a.Holds, Row: -1, Inside: a.Session == 0 || a.Ahead > 0,
		}
		if b.in.HideLabels {
			w.Label = ""
		}
		// Of waits that share a session, the first is the one in the server's queue.
		for _, t := range tags {
			if i, ok := b.rows[spot{a.Session, t}]; ok && a.Session != 0 {
				w.Session, w.Row, w.Inside = b.in.Rows[i].Session, i, false
				delete(b.rows, spot{a.Session, t})
			}
		}
		k.Waiters = append(k.Waiters, w)
	}
}

// strangers adds the waiters that no process reported. A process's wait moves from session to session
// between steps. A row of the process's name, at a key for which it waits, is therefore the same wait.
func (b *builder) strangers() {
	waits := map[string]map[namespace.Tag]*Process{}
	for p, tags := range b.served {
		name := ListenerName(cmp.Or(b.in.Names[p.Listener], p.Name))
		for t := range tags {
			if waits[name] == nil {
				waits[name] = map[namespace.Tag]*Process{}
			}
			waits[name][t] = p
		}
	}
	for i, r := range b.in.Rows {
		if at, ok := b.rows[spot{r.PID, r.Tag}]; !ok || at != i {
			continue
		}
		p := waits[ListenerName(r.Name)][r.Tag]
		if p != nil && !p.Silent {
			continue
		}
		k := b.keys[r.Tag]
		if k.Kind == Semaphore && slices.ContainsFunc(k.Waiters, func(w *Waiter) bool { return w.PID == r.PID }) {
			continue // it keeps the turnstile while it waits for a slot
		}
		k.Waiters = append(k.Waiters, &Waiter{Session: r.Session, Tag: r.Tag, Process: p, Shared: r.Shared, Age: r.Age, Row: i})
	}
}

// order sorts each key's waiters as in the server's queue. Waiters inside a process follow that
// process's waiter at the server, by age.
func (b *builder) order() {
	for _, k := range b.out.Keys {
		head := map[*Process]int{}
		for _, w := range k.Waiters {
			if w.Row >= 0 && w.Process != nil {
				head[w.Process] = w.Row
			}
		}
		place := func(w *Waiter) int {
			if w.Row >= 0 {
				return w.Row
			}
			if at, ok := head[w.Process]; ok && w.Process != nil {
				return at
			}
			return len(b.in.Rows)
		}
		slices.SortStableFunc(k.Waiters, func(a, o *Waiter) int {
			return cmp.Or(cmp.Compare(place(a), place(o)), cmp.Compare(b2i(a.Row < 0), b2i(o.Row < 0)), cmp.Compare(a.Ahead, o.Ahead), cmp.Compare(o.Age, a.Age))
		})
	}
	b.out.Keys = slices.DeleteFunc(b.out.Keys, func(k *Key) bool { return len(k.Holders)+len(k.Waiters) == 0 })
}

// ListenerName is the part of an application_name that fits into that of a listening session.
func ListenerName(name string) string {
	return name[:min(len(name), 63-len(introspect.ListenerPrefix))]
}

// Hidden reports whether the process that told the text of a key left its entity out.
func Hidden(text string) bool { return strings.HasSuffix(text, "/…") }

// namespaceOf returns the name in the text of a key.
func namespaceOf(text string) string {
	name, _, ok := strings.Cut(text, "/")
	if !ok {
		return ""
	}
	return name
}

// mostShown is how many characters of a user's text are shown.
const mostShown = 160

// quote makes a user's text fit to be shown.
func quote(s string) string { return legible.Quote(s, mostShown) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func number[N ~int | ~uint32](n N) string { return strconv.FormatInt(int64(n), 10) }
