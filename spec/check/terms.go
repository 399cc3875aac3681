package check

import (
	"cmp"
	"slices"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// Faults that a process carries out itself, in good order.
const (
	faultDeposed = "deposed"
	faultRetired = "retired"
)

// A place is one process in one election, or of one shard.
type place struct{ process, key string }

// A tenure is a leadership of one term, or the ownership of a shard.
type tenure struct {
	place
	term     uint64
	index    int // of its first event
	began    int64
	rested   int64 // when its work had ended; 0 = it has not
	released bool
}

// terms is the order of terms of all elections of a run. Each guarded transaction and all work has a term.
type terms struct {
	asked   map[place]int64 // when a process began its last attempt
	current map[place]*tenure
	begun   map[string][]*tenure // by key
	early   map[place][]int      // commits and work of terms that the process has not reported yet
	working map[place]uint64
	stopped map[string]bool // processes that ended in good order
	disturb disturbances    // faults and errors
}

func newTerms() *terms {
	return &terms{
		asked: make(map[place]int64), current: make(map[place]*tenure), begun: make(map[string][]*tenure), early: make(map[place][]int),
		working: make(map[place]uint64), stopped: make(map[string]bool),
	}
}

// asks records that a process begins an attempt.
func (t *terms) asks(e trace.Event) { t.asked[place{e.Process, e.Key}] = e.Boot }

// see checks the next event, and returns what is wrong.
func (t *terms) see(index int, e trace.Event) string {
	at := place{e.Process, e.Key}
	switch e.Kind {
	case trace.Acquired, trace.Recovered:
		return t.begins(index, e, at)
	case trace.Released, trace.Lost:
		now := t.current[at]
		if now == nil || now.term != e.Term {
			return "the process does not lead in this term"
		}
		now.released = e.Kind == trace.Released
		delete(t.current, at)
	case trace.Works:
		if t.working[at] != 0 {
			return "its work runs already"
		}
		t.working[at] = e.Term
		t.early[at] = append(t.early[at], index)
	case trace.Rests:
		if t.working[at] != e.Term {
			return "no such work runs"
		}
		delete(t.working, at)
		if led := t.find(at, e.Term); led != nil {
			led.rested = e.Boot
		}
	case trace.Commit:
		t.early[at] = append(t.early[at], index)
		for _, later := range t.begun[e.Key] {
			if later.term > e.Term && later.began < e.Asked {
				return "a guarded transaction began after a later term, and committed"
			}
		}
	case trace.Stopped:
		t.stopped[e.Process] = true
		for led := range t.current {
			if led.process == e.Process {
				return "it stopped, and has not reported the end of its term of " + led.key
			}
		}
	case trace.Error:
		t.disturb = append(t.disturb, span{e.Process, e.Boot, e.Boot})
	case trace.Fault:
		if e.Text != faultDeposed && e.Text != faultRetired {
			t.disturb = t.disturb.with(e)
		}
	}
	return ""
}

func (t *terms) begins(index int, e trace.Event, at place) string {
	for _, other := range t.begun[e.Key] {
		switch {
		case other.term == e.Term:
			return "the term has begun before, at " + other.process
		case other.term > e.Term && other.process == e.Process, other.term > e.Term && other.began < t.asked[at]:
			return "the term is less than one that had begun before the attempt"
		}
	}
	now := &tenure{place: at, term: e.Term, index: index, began: e.Boot}
	if was := t.current[at]; was != nil && e.Kind == trace.Acquired {
		return "the process leads already"
	}
	t.current[at] = now
	t.begun[e.Key] = append(t.begun[e.Key], now)
	return ""
}

func (t *terms) find(at place, term uint64) *tenure {
	for _, led := range t.begun[at.key] {
		if led.place == at && led.term == term {
			return led
		}
	}
	return nil
}

// reported checks that a process had reported the terms of its commits and of its work. It may do so a moment later.
func (t *terms) reported(run []trace.Event, at place) error {
	for _, index := range t.early[at] {
		if t.find(at, run[index].Term) == nil {
			return refuse(run, index, "the process does not lead in this term")
		}
	}
	delete(t.early, at)
	return nil
}

// finish checks what is known only at the end of a run.
func (t *terms) finish(run []trace.Event) error {
	for at := range t.early {
		if !t.stopped[at.process] { // it was killed, perhaps before it reported
			continue
		}
		if err := t.reported(run, at); err != nil {
			return err
		}
	}
	for at, term := range t.working {
		if t.stopped[at.process] {
			for i, e := range run {
				if e.Kind == trace.Works && e.Process == at.process && e.Key == at.key && e.Term == term {
					return refuse(run, i, "this work never ended, and its process stopped")
				}
			}
		}
	}
	for _, all := range t.begun {
		slices.SortFunc(all, func(a, b *tenure) int { return cmp.Compare(a.term, b.term) })
		for i, next := range all[min(1, len(all)):] {
			before := all[i]
			orderly := before.released && !t.disturb.hit(before.process, before.began, next.began)
			if orderly && before.rested > next.began {
				return refuse(run, next.index, "the work of the term before, at %s, had not ended, and its leadership was released later", before.process)
			}
		}
	}
	return nil
}
