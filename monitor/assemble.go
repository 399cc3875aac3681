package monitor

import (
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// A holding is one session's hold of one lock. Process ids are reused sooner or later:
// backendStart, where it is not hidden, distinguishes the sessions.
type holding struct {
	tag          namespace.Tag
	pid          uint32
	mode         string
	backendStart int64
}

// An assembler builds Snapshots from rows and remembers when it first saw each lock.
type assembler struct {
	config    Config
	heard     *heard                          // the answers of the processes
	firstSeen map[holding]time.Time           // the holdings of the newest Snapshot
	keys      map[namespace.Tag]namespace.Tag // its keys, by their turnstiles
	fleet     *fleet.Fleet                    // nil = none
	spaces    *namespace.Set                  // of the fleet; nil = none
}

// assemble builds a Snapshot from the rows that were read at the local time at.
func (a *assembler) assemble(server Server, rows []row, at time.Time) Snapshot {
	server.Now = server.Now.UTC()
	rows = a.mergeTurnstiles(rows)
	s := Snapshot{Locks: make([]Lock, len(rows)), Total: len(rows), Server: server}
	seen := make(map[holding]time.Time, len(rows))
	for i, r := range rows {
		l := a.lock(r)
		if r.Granted {
			a.hold(&l, seen, server.Now, at)
		} else {
			a.wait(&l, server.Now, at)
		}
		l.silentBy = a.heard.silence.by(&l, server.Now, at)
		l.Silent = l.silentBy != 0
		s.Locks[i] = l
		s.Partial = s.Partial || r.Hidden
	}
	a.firstSeen = seen
	fillQueues(s.Locks)
	if s.Partial {
		s.Hidden = []string{"state", "query_start", "backend_start"}
		if a.config.ClientAddr {
			s.Hidden = append(s.Hidden, "client_addr")
		}
	}
	return s
}

// lock returns the fields that a row alone determines.
func (a *assembler) lock(r row) Lock {
	l := Lock{
		PID: r.PID, ApplicationName: r.ApplicationName, State: r.State,
		QueryStart: utc(r.QueryStart), BackendStart: utc(r.BackendStart), ClientAddr: r.ClientAddr,
		Mode: r.Mode, Granted: r.Granted, WaitStart: utc(r.WaitStart),
		Tag: r.tag(), stateChange: r.StateChange,
	}
	a.name(&l)
	return l
}

// wait fills the fields of a waiter.
func (a *assembler) wait(l *Lock, now, local time.Time) {
	if since, ok := a.heard.waits[spot{l.PID, l.Tag}]; ok {
		at := now.Add(since.Sub(local))
		l.WaitStart = &at
	}
	if l.WaitStart != nil {
		l.Duration = seconds(now.Sub(*l.WaitStart))
	}
}

// name fills the fields that identify the lock, and redacts them.
func (a *assembler) name(l *Lock) { a.nameAs(l, a.heard.texts[l.Tag]) }

// tabled returns the name that a table has for a lock.
func (a *assembler) tabled(tag namespace.Tag) (fleet.Lock, bool) {
	if a.fleet == nil {
		return fleet.Lock{}, false
	}
	l, ok := a.fleet.Locks[tag]
	return l, ok
}

// nameAs is name for a key that a process calls text; "" = no process named it.
func (a *assembler) nameAs(l *Lock, text string) {
	l.Key, l.shown = Key{Kind: "single", Text: l.Tag.String()}, true
	if t, ok := a.tabled(l.Tag); ok && (text == "" || incident.Hidden(text)) {
		if text = t.Text; t.Kind != fleet.ShardLock {
			a.nameOther(l, t)
			return
		}
	}
	said, rest, told := strings.Cut(text, "/")
	n, _, named := a.config.Namespaces.Describe(l.Tag)
	if !named {
		n, _, named = a.spaces.Describe(l.Tag)
	}
	name := n.Name()
	if !named && told {
		name, named = said, true
	}
	separator, entity := "/", ""
	if k, ok := l.Tag.Single(); ok {
		l.Key.Bigint = &k
		if named {
			l.Namespace = &name
		}
		if !told && !named && text != "" {
			l.Key.Text = text // without an entity
		}
		if !told || incident.Hidden(text) {
			return
		}
		entity = rest
	} else {
		k1, k2, _ := l.Tag.Pair()
		l.Key.Kind, l.Key.Key1, l.Key.Key2 = "pair", &k1, &k2
		entity = strconv.Itoa(int(k2))
		if !named {
			name, separator = strconv.Itoa(int(k1)), ":"
		}
	}
	if a.config.Redact != nil {
		id, slot := cutSlot(entity)
		if shown := a.config.Redact(name, id); shown != id {
			l.Key.Key2, entity, l.shown = nil, shown+slot, false
		}
	}
	l.Namespace, l.EntityID = &name, &entity
	l.Key.Text = name + separator + entity
}

// nameOther names a lock that is not on a key of a namespace.
func (a *assembler) nameOther(l *Lock, t fleet.Lock) {
	if k, ok := l.Tag.Single(); ok {
		l.Key.Bigint = &k
	}
	l.Key.Text = t.Text
	if t.Kind != fleet.GuardLock {
		return
	}
	if name, id, ok := strings.Cut(t.Text, "/"); ok && a.config.Redact != nil {
		shown := a.config.Redact(name, id)
		l.Key.Text, l.shown = name+"/"+shown, shown == id
	}
	l.Key.Text += " (guard)"
}

// cutSlot cuts the number of a semaphore's slot off its id.
func cutSlot(entity string) (id, slot string) {
	if i := strings.LastIndex(entity, "#slot"); i >= 0 {
		if _, err := strconv.ParseUint(entity[i+len("#slot"):], 10, 16); err == nil {
			return entity[:i], entity[i:]
		}
	}
	return entity, ""
}

// hold fills the fields of a holder.
func (a *assembler) hold(l *Lock, seen map[holding]time.Time, now, local time.Time) {
	h := holding{tag: l.Tag, pid: l.PID, mode: l.Mode}
	if l.BackendStart != nil {
		h.backendStart = l.BackendStart.UnixNano()
	}
	first, ok := a.firstSeen[h]
	if !ok {
		first = now
	}
	// An idle session took the lock in an earlier statement, which has ended.
	if idle := l.State != nil && strings.HasPrefix(*l.State, "idle"); idle && l.stateChange != nil && l.stateChange.Before(first) {
		first = l.stateChange.UTC()
	}
	seen[h] = first
	if since, ok := a.heard.holds[spot{l.PID, l.Tag}]; ok {
		l.HeldSince = &HeldSince{At: now.Add(since.Sub(local)), Source: SourceProcess}
		l.Duration = seconds(local.Sub(since))
		return
	}
	l.HeldSince = &HeldSince{At: first, Source: SourceFirstSeen}
	l.Duration = seconds(now.Sub(first))
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// seconds clamps at 0: a wait may begin after the server reads its clock and before it reads its
// locks.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
