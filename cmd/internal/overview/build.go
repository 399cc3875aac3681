package overview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// A claim is a session's hold of a lock.
type claim struct {
	tag namespace.Tag
	pid uint32
}

// A told is a process's data about a hold.
type told struct {
	introspect.Lock
	by *introspect.Process // as the part that holds it
}

// A builder builds rows.
type builder struct {
	answers    introspect.Answers
	rows       []*Row
	rowOf      map[namespace.Tag]*Row // of each lock of a key
	semaphores map[string]*Row
	gates      map[namespace.Tag]*Row // of semaphores, by the turnstile of their waiters
	names      map[namespace.Tag]string
	told       map[claim]told
	classes    map[uint32]namespace.Tag // of the elections' further locks
	companions []companion
	processes  map[uint32]*introspect.Process // by the sessions that they reported
}

// maxSlots is the largest number of slots of a semaphore.
const maxSlots = 1000

// learn determines from answers and known keys which locks belong to which keys.
func (b *builder) learn(s monitor.Snapshot, known []namespace.Key) {
	for i := range b.answers.Answers {
		b.learnAnswer(&b.answers.Answers[i])
	}
	present := make(map[namespace.Tag]bool, len(s.Locks))
	for _, l := range s.Locks {
		present[l.Tag] = true
	}
	for _, k := range known {
		b.learnSemaphore(k, present)
	}
	names := Namespaces(b.answers)
	for text, r := range b.semaphores { // their turnstiles, whose keys are in no answer
		if k, err := names.Parse(text); err == nil {
			r.Tag = k.Tag()
			b.learnGate(k, r)
		}
	}
	classes := b.classes
	for tag := range present {
		if tag.ClassID>>31 == 0 || tag.ObjSubID == namespace.PairForm {
			classes[electionkeys.Of(tag).ClassID()] = tag
		}
	}
	if s.Fleet != nil {
		kinds := map[fleet.Kind]Kind{fleet.ShardLock: Shard, fleet.GuardLock: Guard, fleet.TickLock: Tick, fleet.NodeLock: Mailbox}
		for tag := range present {
			if l, ok := s.Fleet.Locks[tag]; ok && b.rowOf[tag] == nil {
				b.row(tag).Kind = kinds[l.Kind]
			}
		}
	}
	for tag := range present { // elections, also of processes that do not answer
		if main, ok := classes[tag.ClassID]; ok && tag.ObjSubID == namespace.SingleForm && b.rowOf[tag] == nil {
			r := b.row(main)
			r.Kind = Election
			b.rowOf[tag] = r
		}
	}
}

func (b *builder) learnAnswer(a *introspect.Answer) {
	as := func(service string) *introspect.Process {
		process := a.Process.As(service)
		return &process
	}
	for _, l := range a.Locks {
		process := as(l.Service)
		b.told[claim{l.Tag, l.Session}] = told{l, process}
		b.processes[l.Session] = process
		if l.Semaphore != "" && !Hidden(l.Semaphore) {
			r := b.semaphore(l.Semaphore)
			r.Slots = max(r.Slots, l.Slots)
			b.rowOf[l.Tag] = r
			continue
		}
		b.name(l.Tag, l.Key)
		if l.Group != "" {
			b.row(l.Tag).Kind = Shard
		}
	}
	for _, g := range a.Groups {
		b.processes[g.Session] = as(g.Service)
	}
	for _, w := range a.Waits {
		if w.Session != 0 {
			b.processes[w.Session] = as(w.Service)
		}
		if !w.Semaphore {
			b.name(w.Tag, w.Key)
			continue
		}
		r := b.waited(w)
		r.Slots = max(r.Slots, len(w.Slots))
		for _, tag := range w.Slots {
			b.rowOf[tag] = r
		}
	}
	for _, e := range a.Elections {
		if len(e.Tags) == 0 {
			continue // it is in no database
		}
		if e.Session != 0 {
			b.processes[e.Session] = as(e.Service)
		}
		b.name(e.Tags[0], e.Key)
		r := b.row(e.Tags[0])
		r.Kind = Election
		for _, tag := range e.Tags {
			b.rowOf[tag] = r
		}
		b.classes[e.Class] = e.Tags[0]
	}
}

// learnSemaphore finds the slots of the semaphore on k.
func (b *builder) learnSemaphore(k namespace.Key, present map[namespace.Tag]bool) {
	b.name(k.Tag(), k.String())
	for i := range maxSlots {
		slot, err := k.Companion("slot" + strconv.Itoa(i))
		if err != nil {
			return // a raw key has none
		}
		if present[slot.Tag()] {
			r := b.semaphore(k.String())
			r.Tag, b.rowOf[slot.Tag()] = k.Tag(), r
			b.learnGate(k, r)
		}
	}
}

func (b *builder) learnGate(k namespace.Key, r *Row) {
	if gate, err := k.Companion("turnstile"); err == nil {
		b.gates[gate.Tag()] = r
	}
}

// name records a process's name for a key.
func (b *builder) name(tag namespace.Tag, text string) {
	if known := b.names[tag]; known == "" || Hidden(known) {
		b.names[tag] = text
	}
	if r := b.rowOf[tag]; r != nil && r.Tag == tag {
		r.Key = b.names[tag]
	}
}

// row returns the row of a lock, and creates it if necessary.
func (b *builder) row(tag namespace.Tag) *Row {
	r := b.rowOf[tag]
	if r == nil {
		r = b.newRow(Lock, tag.String(), tag)
		if name := b.names[tag]; name != "" {
			r.Key = name
		}
		b.rowOf[tag] = r
	}
	return r
}

func (b *builder) newRow(kind Kind, text string, tag namespace.Tag) *Row {
	r := &Row{Key: text, Kind: kind, Tag: tag, Holders: []Party{}, Waiters: []Party{}}
	b.rows = append(b.rows, r)
	return r
}

func (b *builder) semaphore(text string) *Row {
	r := b.semaphores[text]
	if r == nil {
		r = b.newRow(Semaphore, text, namespace.Tag{})
		b.semaphores[text] = r
	}
	return r
}

// waited returns the row of the semaphore that w waits for.
func (b *builder) waited(w introspect.Wait) *Row {
	text := w.Key
	if Hidden(text) {
		text = w.Tag.String() // there is only one
	}
	r := b.semaphore(text)
	r.Key, r.Tag = w.Key, w.Tag
	return r
}

// add adds PostgreSQL's data about one session.
func (b *builder) add(l monitor.Lock) {
	p := b.party(l)
	if r := b.gates[l.Tag]; r != nil {
		if b.processes[l.PID] == nil { // otherwise its process reported the wait
			r.Waiters = append(r.Waiters, p)
		}
		r.Tags = append(r.Tags, l.Tag)
		return
	}
	r := b.row(l.Tag)
	if r.Tag == l.Tag && r.Key == l.Tag.String() { // no process named it, but the viewer may know a name
		r.Key = l.Key.Text
		if l.Namespace != nil && l.EntityID == nil {
			r.namespace = *l.Namespace
		}
	}
	if !slices.Contains(r.Tags, l.Tag) {
		r.Tags = append(r.Tags, l.Tag)
	}
	switch {
	case r.Kind == Election && l.Tag != r.Tag:
		b.companions = append(b.companions, companion{r, l, p})
	case l.Granted:
		r.Holders = append(r.Holders, p)
	case b.processes[l.PID] == nil: // the others reported it themselves, as Waits
		r.Waiters = append(r.Waiters, p)
	}
}

// A companion is a session's hold of an election's other lock, which does not decide it.
type companion struct {
	row   *Row
	lock  monitor.Lock
	party Party
}

// addCompanions adds the holders of another lock of an election that do not lead.
func (b *builder) addCompanions() {
	for _, c := range b.companions {
		if _, leads := c.row.Session(c.lock.PID, true); leads || !c.lock.Granted {
			continue
		}
		c.party.Note = "the lock of an earlier term"
		if c.lock.Mode == "ShareLock" {
			c.party.Note = "a guarded transaction"
		}
		c.row.Holders = append(c.row.Holders, c.party)
	}
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

// party returns one session, with its process's data about it.
func (b *builder) party(l monitor.Lock) Party {
	p := PartyOf(l)
	if t, ok := b.told[claim{l.Tag, l.PID}]; ok && l.Granted {
		p.Name, p.Process = ProcessName(*t.by), t.by
		p.Age, p.Exact, p.Label = t.Age, true, t.Label
		p.Note = notes(t.Lock)
		return p
	}
	if process := b.processes[l.PID]; process != nil {
		p.Name, p.Process = ProcessName(*process), process
		return p
	}
	p.Silent = l.Silent
	return p
}

func notes(l introspect.Lock) string {
	var all []string
	if l.Asked {
		all = append(all, "asked to release")
	}
	if l.Doubtful {
		all = append(all, "its server did not answer in time")
	}
	if l.HandOvers > 0 {
		all = append(all, fmt.Sprintf("handed over %d times in the process", l.HandOvers))
	}
	if l.Beside > 0 {
		all = append(all, fmt.Sprintf("%d other keys on its session", l.Beside))
	}
	return strings.Join(all, ", ")
}

// addWaits adds the waits that processes reported.
func (b *builder) addWaits() {
	for i := range b.answers.Answers {
		a := &b.answers.Answers[i]
		for _, w := range a.Waits {
			r := b.rowOf[w.Tag]
			switch {
			case w.Semaphore:
				r = b.waited(w)
			case r == nil:
				r = b.row(w.Tag)
			}
			process := a.Process.As(w.Service)
			r.Waiters = append(r.Waiters, Party{
				Name: ProcessName(process), PID: w.Session, Shared: w.Shared, Age: w.Age, Exact: true, Label: w.Label, Left: w.Left, Process: &process,
			})
		}
	}
}

// addElections adds the candidates' states. PostgreSQL knows only the leader.
func (b *builder) addElections() {
	for i := range b.answers.Answers {
		a := &b.answers.Answers[i]
		for _, e := range a.Elections {
			if len(e.Tags) > 0 {
				b.addCandidate(b.rowOf[e.Tags[0]], a, e)
			}
		}
	}
}

func (b *builder) addCandidate(r *Row, a *introspect.Answer, e introspect.Election) {
	if e.State == "stopped" {
		return
	}
	process := a.Process.As(e.Service)
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
	for i := range r.Holders {
		if h := &r.Holders[i]; e.Session != 0 && h.PID == e.Session {
			h.Name, h.Process, h.Age, h.Exact, h.Note = ProcessName(process), &process, e.Age, true, note
			return
		}
	}
	r.Waiters = append(r.Waiters, Party{Name: ProcessName(process), PID: e.Session, Age: e.Age, Exact: true, Note: note, Process: &process})
}
