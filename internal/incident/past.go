package incident

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The bounds of the past.
const (
	Kept         = time.Hour
	maxEvents    = 5000
	maxBurst     = 50 // events of a kind in one picture
	maxFrames    = 1500
	frameKeys    = 40
	frameSpaces  = 20
	frameEvery   = 5 * time.Second
	slowAcquires = time.Second // the shortest acquisition that is an event
	longHolds    = 10 * time.Second
)

// An EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	Acquired EventKind = "acquired" // after a long wait
	Released EventKind = "released" // after a long hold, or one with waiters
	Lost     EventKind = "lost"     // its process or its session ended
	Handed   EventKind = "handed over"
	Raised   EventKind = "raised"
	Cleared  EventKind = "cleared"
)

// An Event is something that happened, as far as two pictures can show.
type Event struct {
	At         time.Time
	Kind       EventKind
	Key, KeyID string
	Who        string
	Text       string
	Severity   Severity // of a verdict
}

// A Frame is the most important data of a moment.
type Frame struct {
	At       time.Time
	Keys     []FrameKey
	All      int // keys
	Waiting  int
	Spaces   []FrameSpace // those with the most waiters
	Verdicts []Verdict
}

// A FrameSpace is a namespace in a Frame, without the keys of leaders.
type FrameSpace struct {
	Name           string
	Waiting        int
	Longest, Since time.Duration // the longest wait and hold
}

// A FrameKey is a key in a Frame.
type FrameKey struct {
	Key, ID, Holder string
	Since, Longest  time.Duration
	Waiters         int
}

// Say describes the key.
func (k FrameKey) Say() string {
	if k.Holder == "" {
		return fmt.Sprintf("nobody held %s, %d waited", k.Key, k.Waiters)
	}
	text := fmt.Sprintf("%s held %s for %s", k.Holder, k.Key, Age(k.Since))
	if k.Waiters > 0 {
		text += fmt.Sprintf(", %d waited", k.Waiters)
	}
	return text
}

// A Past is the last hour. One goroutine at a time uses it.
type Past struct {
	Events []Event // the oldest first
	Frames []Frame // the oldest first
	Began  time.Time

	burst    map[EventKind]int // of the current picture
	before   *Picture
	heads    map[spot]head
	verdicts map[string]Verdict
	leaders  map[string]Member
}

// A head is a hold in the previous picture.
type head struct {
	key    *Key
	holder *Holder
}

func newPast() *Past { return &Past{} }

// add compares a picture with the previous one.
func (p *Past) add(now *Picture, found []Verdict) {
	heads := map[spot]head{}
	for _, k := range now.Keys {
		for _, h := range k.Holders {
			heads[spot{h.PID, h.Tag}] = head{k, h}
		}
	}
	p.burst = map[EventKind]int{}
	if p.before == nil {
		p.Began = now.At
	} else {
		p.endings(now, heads)
		p.beginnings(now, heads)
	}
	for kind, n := range p.burst {
		if n > maxBurst {
			p.Events = append(p.Events, Event{At: now.At, Kind: kind, Text: fmt.Sprintf("and %d more", n-maxBurst)})
		}
	}
	p.leading(now)
	changed := p.judged(now, found)
	p.heads, p.before = heads, now
	if n := len(p.Frames); n == 0 || changed && now.At.Sub(p.Frames[n-1].At) >= time.Second || now.At.Sub(p.Frames[n-1].At) >= frameEvery {
		p.Frames = append(p.Frames, frame(now, found))
	}
	p.forget(now.At)
}

func (p *Past) event(at time.Time, kind EventKind, k *Key, who, text string) {
	if p.burst[kind]++; p.burst[kind] > maxBurst {
		return
	}
	e := Event{At: at, Kind: kind, Who: who, Text: text}
	if k != nil {
		e.Key, e.KeyID = k.Text, k.ID
	}
	p.Events = append(p.Events, e)
}

// endings records the holds that ended.
func (p *Past) endings(now *Picture, heads map[spot]head) {
	answers := map[string]bool{}
	for _, proc := range now.Processes {
		answers[proc.ID] = true
	}
	for at, old := range p.heads {
		if still, ok := heads[at]; ok && still.holder.Age >= old.holder.Age {
			continue
		}
		h, k := old.holder, old.key
		waited := len(k.Waiters)
		switch {
		case h.Process != nil && !answers[h.Process.ID]:
			p.event(now.At, Lost, k, h.Who(), fmt.Sprintf("%s is gone; it held %s for %s, %d waited", h.Who(), k.Text, Age(h.Age), waited))
		case h.Process != nil && h.Process.Silent:
			p.event(now.At, Lost, k, h.Who(), fmt.Sprintf("%s lost %s while it was silent; it had held it for %s, %d waited", h.Who(), k.Text, Age(h.Age), waited))
		case h.Age >= longHolds || waited > 0 && h.Age >= slowAcquires:
			p.event(now.At, Released, k, h.Who(), fmt.Sprintf("%s released %s after %s, %d waited", h.Who(), k.Text, Age(h.Age), waited))
		}
	}
}

// beginnings records the new holds.
func (p *Past) beginnings(now *Picture, heads map[spot]head) {
	keys := map[string]*Key{}
	for _, k := range p.before.Keys {
		keys[k.ID] = k
	}
	for at, h := range heads {
		if old, ok := p.heads[at]; ok && old.holder.Age <= h.holder.Age {
			continue
		}
		k := keys[h.key.ID]
		if k == nil {
			continue
		}
		var waited time.Duration
		for _, w := range k.Waiters {
			if w.Who() == h.holder.Who() {
				waited = max(waited, w.Age)
			}
		}
		if waited < slowAcquires {
			continue
		}
		text := fmt.Sprintf("%s got %s after %s", h.holder.Who(), h.key.Text, Age(waited))
		kind := Acquired
		if len(k.Holders) > 0 && k.Holders[0].Who() != h.holder.Who() && k.Kind == Mutex {
			kind, text = Handed, text+", from "+k.Holders[0].Who()
		}
		p.event(now.At, kind, h.key, h.holder.Who(), text)
	}
}

// leading records the changes of leaders.
func (p *Past) leading(now *Picture) {
	leaders := map[string]Member{}
	for _, e := range now.Elections {
		old, led := p.leaders[e.ID]
		all := e.Leaders()
		if len(all) == 0 {
			if led {
				leaders[e.ID] = old // until another one leads
			}
			continue
		}
		leaders[e.ID] = all[0]
		if led && old.Process.ID == all[0].Process.ID && old.Node == all[0].Node && old.Term == all[0].Term || p.before == nil {
			continue
		}
		text := fmt.Sprintf("%s leads %s", all[0].Node, e.Name)
		if all[0].Term != "" {
			text += ", term " + all[0].Term
		}
		if led {
			text += ", after " + old.Node
		}
		p.Events = append(p.Events, Event{At: now.At.Add(-all[0].Age), Kind: Handed, Key: e.Name, KeyID: e.ID, Who: all[0].Node, Text: text})
	}
	p.leaders = leaders
}

// judged records the new verdicts, and those that are over.
func (p *Past) judged(now *Picture, found []Verdict) (changed bool) {
	all := slices.Clone(found)
	for i := range found {
		all = append(all, found[i].Consequences...) // one that is folded is not over
	}
	verdicts := make(map[string]Verdict, len(all))
	for _, v := range all {
		verdicts[v.id()] = v
		if _, ok := p.verdicts[v.id()]; !ok {
			changed = true
			p.Events = append(p.Events, Event{At: now.At, Kind: Raised, Key: v.Key, KeyID: v.KeyID, Text: v.Text, Severity: v.Severity})
		}
	}
	for id, v := range p.verdicts {
		if _, ok := verdicts[id]; !ok {
			changed = true
			p.Events = append(p.Events, Event{At: now.At, Kind: Cleared, Key: v.Key, KeyID: v.KeyID, Text: "no longer: " + v.Text, Severity: v.Severity})
		}
	}
	p.verdicts = verdicts
	return changed
}

func frame(now *Picture, found []Verdict) Frame {
	f := Frame{At: now.At, All: len(now.Keys), Verdicts: found, Spaces: spaces(now)}
	for _, k := range now.Keys {
		f.Waiting += len(k.Waiters)
	}
	for _, k := range ByTrouble(now, found)[:min(frameKeys, len(now.Keys))] {
		fk := FrameKey{Key: k.Text, ID: k.ID, Since: k.Since(), Longest: k.Longest(), Waiters: len(k.Waiters)}
		if len(k.Holders) > 0 {
			fk.Holder = k.Holders[0].Who()
		}
		f.Keys = append(f.Keys, fk)
	}
	return f
}

func spaces(now *Picture) (all []FrameSpace) {
	at := map[string]int{}
	for _, k := range now.Keys {
		if k.Leads() {
			continue
		}
		i, ok := at[k.Namespace]
		if !ok {
			i = len(all)
			at[k.Namespace], all = i, append(all, FrameSpace{Name: k.Namespace})
		}
		s := &all[i]
		s.Waiting, s.Longest, s.Since = s.Waiting+len(k.Waiters), max(s.Longest, k.Longest()), max(s.Since, k.Since())
	}
	slices.SortStableFunc(all, func(a, b FrameSpace) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Since, a.Since))
	})
	return slices.Clip(all[:min(frameSpaces, len(all))])
}

// forget enforces the bounds.
func (p *Past) forget(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) > Kept }
	for len(p.Events) > maxEvents || len(p.Events) > 0 && old(p.Events[0].At) {
		p.Events = p.Events[1:]
	}
	for len(p.Frames) > maxFrames || len(p.Frames) > 0 && old(p.Frames[0].At) {
		p.Frames = p.Frames[1:]
	}
}

// At returns the newest frame that is not after at, or the oldest if all are.
func (p *Past) At(at time.Time) (Frame, bool) {
	if len(p.Frames) == 0 {
		return Frame{}, false
	}
	i, found := slices.BinarySearchFunc(p.Frames, at, func(f Frame, at time.Time) int { return f.At.Compare(at) })
	if !found {
		i--
	}
	return p.Frames[max(i, 0)], true
}

// ByTrouble sorts the keys of a picture: those with the worst verdicts but notes first, then by the total of all waits,
// then by the oldest hold.
func ByTrouble(p *Picture, found []Verdict) []*Key {
	worst := map[string]int{}
	for _, v := range found {
		r := v.Severity.rank() - Note.rank()
		for _, id := range v.Keys() {
			worst[id] = min(worst[id], r)
		}
	}
	type ranked struct {
		key     *Key
		trouble int
		waited  time.Duration
		since   time.Duration
	}
	all := make([]ranked, len(p.Keys))
	for i, k := range p.Keys {
		all[i] = ranked{k, worst[k.ID], k.Waited(), k.Since()}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.trouble, b.trouble), cmp.Compare(b.waited, a.waited), cmp.Compare(b.since, a.since))
	})
	keys := make([]*Key, len(all))
	for i, r := range all {
		keys[i] = r.key
	}
	return keys
}
