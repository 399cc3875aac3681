package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

var start = time.Date(2026, 3, 1, 3, 12, 40, 0, time.UTC)

// A world is what the looks of a test see.
type world struct {
	incident.Input
	memory *incident.Memory
	found  []incident.Verdict
	last   *incident.Picture
}

func newWorld() *world {
	return &world{
		Input:  incident.Input{At: start, Names: map[uint32]string{}, Server: incident.Server{LockRoom: 6400, ConnLimit: 97}},
		memory: incident.NewMemory(incident.DefaultLimits()),
	}
}

// look looks, d after the look before: all that lasts is older by d.
func (w *world) look(d time.Duration) *world {
	w.At = w.At.Add(d)
	for i := range w.Silent {
		w.Silent[i].Unanswered++ // each look asks
	}
	for i := range w.Rows {
		w.Rows[i].Age += d
		w.Rows[i].StateAge += d
	}
	for i := range w.Answers {
		a := &w.Answers[i]
		for j := range a.Locks {
			a.Locks[j].Age += d
		}
		for j := range a.Waits {
			a.Waits[j].Age += d
		}
		for j := range a.Elections {
			a.Elections[j].Age += d
		}
		a.Process.Clock = a.Process.Clock.Add(d)
	}
	w.last = incident.Build(w.Input)
	w.found = w.memory.Look(w.last)
	return w
}

// looks looks twice, so that what must last does.
func (w *world) looks() *world { return w.look(0).look(2 * time.Second) }

func (w *world) has(name string) *incident.Verdict {
	for i := range w.found {
		if w.found[i].Name == name {
			return &w.found[i]
		}
	}
	return nil
}

// process adds one that answers, with the session listener.
func (w *world) process(name string, listener uint32) *introspect.Answer {
	w.Names[listener] = name
	w.Answers = append(w.Answers, introspect.Answer{
		Process: introspect.Process{ID: name, Service: "billing", Version: "v1.2.3", Host: "web-" + name, PID: 4711, Clock: w.At}, Session: listener,
	})
	return &w.Answers[len(w.Answers)-1]
}

// answer is that of a process.
func (w *world) answer(name string) *introspect.Answer {
	for i := range w.Answers {
		if w.Answers[i].Process.ID == name {
			return &w.Answers[i]
		}
	}
	panic("BUG: no process " + name)
}

// silence makes a process not answer any more.
func (w *world) silence(name string) {
	a := *w.answer(name)
	w.Silent = append(w.Silent, incident.Silent{Silent: introspect.Silent{Session: a.Session, ApplicationName: name}, Last: &a, Spoke: w.At})
	for i := range w.Answers {
		if w.Answers[i].Process.ID == name {
			w.Answers = append(w.Answers[:i:i], w.Answers[i+1:]...)
			return
		}
	}
}

var names = map[uint32]string{1: "order", 2: "stock"}

func key(ns, id int32) namespace.Tag { return namespace.Pair(ns, id).Tag() }

func text(tag namespace.Tag) string {
	k1, k2, _ := tag.Pair()
	if name := names[uint32(k1)]; name != "" {
		return name + "/" + namespace.Pair(1, k2).String()[2:]
	}
	return tag.String()
}

// row adds a row of pg_locks.
func (w *world) row(pid uint32, name string, tag namespace.Tag, granted bool) *incident.Row {
	k1, _, _ := tag.Pair()
	r := incident.Row{Session: incident.Session{PID: pid, Name: name, State: "idle"}, Tag: tag, Text: text(tag), Namespace: names[uint32(k1)], Shown: true, Granted: granted}
	at := len(w.Rows)
	for i, o := range w.Rows {
		if o.Tag == tag {
			at = i + 1
		}
	}
	w.Rows = append(w.Rows[:at:at], append([]incident.Row{r}, w.Rows[at:]...)...)
	return &w.Rows[at]
}

// holds makes a process hold a key, at the server and by its answer.
func (w *world) holds(name string, pid uint32, tag namespace.Tag) *introspect.Lock {
	w.row(pid, name, tag, true)
	a := w.answer(name)
	a.Locks = append(a.Locks, introspect.Lock{Key: text(tag), Tag: tag, Session: pid})
	a.AllLocks++
	return &a.Locks[len(a.Locks)-1]
}

// waits makes a process wait for a key, while the caller holds others.
func (w *world) waits(name string, pid uint32, tag namespace.Tag, holds ...namespace.Tag) *introspect.Wait {
	a := w.answer(name)
	if pid != 0 {
		w.row(pid, name, tag, false)
	}
	ahead := 0
	for _, o := range a.Waits {
		if o.Tag == tag {
			ahead++
		}
	}
	a.Waits = append(a.Waits, introspect.Wait{Key: text(tag), Tag: tag, Session: pid, Holds: holds, Ahead: ahead})
	a.AllWaits++
	return &a.Waits[len(a.Waits)-1]
}

func requireVerdict(t *testing.T, w *world, name string) incident.Verdict {
	t.Helper()
	v := w.has(name)
	require.NotNil(t, v, "%+v", w.found)
	return *v
}
