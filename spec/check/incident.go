package check

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// What Event.To is of a verdict: the tool that says it. Absent is the claim of the page that there is no such verdict.
const (
	Page    = "page"
	Command = "command"
	Absent  = "absent"
)

// Incident replays a drill: what the processes of a fleet did, which faults hit them, and what the tools of the person on call
// said. Its locks are a run of Locks, and its elections one of Elections. The table of the fleet judges the tools:
//
//   - A verdict is said only while it is true, and names who is concerned.
//   - The page and the command line each name every fault, and every call that waits until the end of the run.
func Incident(run []trace.Event) error {
	faults := func(e trace.Event) bool { return e.Kind == trace.Fault }
	if err := part(run, Locks, func(e trace.Event) bool { return faults(e) || e.Who != "" }); err != nil {
		return err
	}
	if err := part(run, Elections, func(e trace.Event) bool { return faults(e) || e.Who == "" }); err != nil {
		return err
	}
	f := newFleet(run)
	for i, e := range run {
		if wrong := f.see(i, e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
	}
	if open := f.unnamed(); open >= 0 {
		return refuse(run, open, "the page and the command line have not both named this")
	}
	return nil
}

// part checks some of the events of a run.
func part(run []trace.Event, c Check, keep func(trace.Event) bool) error {
	var some []trace.Event
	var indexes []int
	for i, e := range run {
		if keep(e) {
			some, indexes = append(some, e), append(indexes, i)
		}
	}
	err := c(some)
	if r, ok := errors.AsType[*RefusalError](err); ok {
		r.Index = indexes[r.Index]
	}
	return err
}

// A fleet is who has and wants what, and what hit whom. Keys are those of locks and elections.
type fleet struct {
	has    map[string]map[string]bool // the keys that a process holds or leads
	wants  map[string]map[string]int  // the keys that it has asked for, and the event
	led    map[string]bool            // elections that have had a leader
	silent map[string]fault           // by process
	leaked map[string]fault           // by key
	faults []int                      // their events
	named  map[naming]bool
}

// A fault is where it began, and what its process had then.
type fault struct {
	index int
	had   map[string]bool
}

// A naming is what a tool has said, by the event that it is about.
type naming struct {
	index int
	tool  string
}

func newFleet(run []trace.Event) *fleet {
	f := &fleet{
		has: make(map[string]map[string]bool), wants: make(map[string]map[string]int), led: make(map[string]bool),
		silent: make(map[string]fault), leaked: make(map[string]fault), named: make(map[naming]bool),
	}
	for _, e := range run {
		f.has[e.Process], f.wants[e.Process] = make(map[string]bool), make(map[string]int)
	}
	return f
}

// see moves the table by an event, and returns what is wrong with a verdict.
func (f *fleet) see(index int, e trace.Event) string {
	switch e.Kind {
	case trace.Ask:
		f.wants[e.Process][e.Key] = index
	case trace.Refused:
		delete(f.wants[e.Process], e.Key)
	case trace.Acquired, trace.Recovered:
		delete(f.wants[e.Process], e.Key)
		f.has[e.Process][e.Key] = true
		f.led[e.Key] = f.led[e.Key] || e.Who == ""
	case trace.Released, trace.Lost:
		delete(f.has[e.Process], e.Key)
	case trace.Fault:
		f.fault(index, e)
	case trace.Verdict:
		return f.judge(e)
	}
	return ""
}

func (f *fleet) fault(index int, e trace.Event) {
	switch {
	case e.To == trace.Ends:
		delete(f.silent, e.Who)
		return
	case e.Key != "":
		f.leaked[e.Key] = fault{index: index}
	default:
		f.silent[e.Who] = fault{index, maps.Clone(f.has[e.Who])}
	}
	f.faults = append(f.faults, index)
}

// judge checks a verdict, and notes what it names.
func (f *fleet) judge(e trace.Event) string {
	if e.To == Absent {
		return demand(!f.any(e.Text), "it is true")
	}
	var keys, processes []string
	for _, word := range e.Words {
		if _, ok := f.has[word]; ok {
			processes = append(processes, word)
		} else if strings.Contains(word, "/") {
			keys = append(keys, word)
		}
	}
	about, ok := f.evidence(e.Text, keys, processes)
	for _, index := range about {
		f.named[naming{index, e.To}] = true
	}
	return demand(ok, "it is not true")
}

// evidence reports whether a verdict on keys and processes is true, and returns the events that it names.
func (f *fleet) evidence(verdict string, keys, processes []string) (about []int, ok bool) {
	ok = true
	switch verdict {
	case "held-long":
		for _, key := range keys {
			ok = ok && slices.Contains(processes, f.holder(key))
			for _, wants := range f.wants {
				if index, waits := wants[key]; waits {
					about = append(about, index)
				}
			}
		}
	case "deadlock":
		for _, process := range processes {
			blocked := false
			for key, index := range f.wants[process] {
				if holder := f.holder(key); slices.Contains(keys, key) && holder != process && slices.Contains(processes, holder) {
					about, blocked = append(about, index), true
				}
			}
			ok = ok && blocked
		}
	case "pooler":
		for _, key := range keys {
			leak, leaked := f.leaked[key]
			about, ok = append(about, leak.index), ok && leaked && f.holder(key) == ""
		}
	case "holder-silent":
		for _, process := range processes {
			hit, silent := f.silent[process]
			about, ok = append(about, hit.index), ok && silent && len(hit.had) > 0
			for _, key := range keys {
				ok = ok && hit.had[key]
			}
		}
	default:
		return nil, false // the table knows no such verdict
	}
	return about, ok && len(keys)+len(processes) > 0
}

// any reports whether a verdict would be true now.
func (f *fleet) any(verdict string) bool {
	switch verdict {
	case "deadlock":
		for process := range f.wants {
			if f.waitsForItself(process) {
				return true
			}
		}
	case "holder-silent":
		for _, hit := range f.silent {
			if len(hit.had) > 0 {
				return true
			}
		}
	case "pooler":
		return len(f.leaked) > 0
	case "no-leader":
		for key := range f.led {
			if f.led[key] && f.holder(key) == "" && !slices.ContainsFunc(slices.Collect(maps.Values(f.silent)), func(hit fault) bool { return hit.had[key] }) {
				return true // nobody leads, nor may lead until its lease ends
			}
		}
	}
	return false
}

// waitsForItself reports whether a process waits for a lock whose holder waits, perhaps through others, for one of its own.
func (f *fleet) waitsForItself(process string) bool {
	seen, next := make(map[string]bool), []string{process}
	for len(next) > 0 {
		for key := range f.wants[next[0]] {
			holder := f.holder(key)
			if holder == process {
				return true
			}
			if holder != "" && !seen[holder] {
				seen[holder], next = true, append(next, holder)
			}
		}
		next = next[1:]
	}
	return false
}

// holder returns the process that holds a key or leads its election; "" = none.
func (f *fleet) holder(key string) string {
	for process, has := range f.has {
		if has[key] {
			return process
		}
	}
	return ""
}

// unnamed returns the first event of a fault, or of a call that waits for somebody, that a tool has not named; -1 = none.
func (f *fleet) unnamed() int {
	events := slices.Clone(f.faults)
	for _, wants := range f.wants {
		for key, index := range wants {
			if f.holder(key) != "" {
				events = append(events, index)
			}
		}
	}
	slices.Sort(events)
	for _, index := range events {
		if !f.named[naming{index, Page}] || !f.named[naming{index, Command}] {
			return index
		}
	}
	return -1
}
