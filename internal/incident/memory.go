package incident

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// The bounds of the memory.
const (
	maxHistory = 4096 // keys and namespaces with known holds
	holdsKept  = 16   // for each
	holdsKnown = 5    // that define what is usual
	queueKept  = 32   // samples of a queue
)

// A Memory holds earlier observations. One goroutine uses it at a time.
type Memory struct {
	limits Limits
	first  map[string]time.Time // since when conditions have lasted without a break
	now    map[string]time.Time // those of the current picture
	silent map[string]time.Duration
	holds  map[holdID]time.Duration // the durations in the previous picture
	usuals map[string][]time.Duration
	queues map[string][]sample
	past   *Past
}

// A holdID is one hold.
type holdID struct {
	pid  uint32
	tag  namespace.Tag
	key  string
	name string // of its namespace
}

// A sample is the greatest length of a queue within one second.
type sample struct {
	at time.Time
	n  int
}

// NewMemory returns an empty Memory.
func NewMemory(limits Limits) *Memory {
	return &Memory{limits: limits, first: map[string]time.Time{}, usuals: map[string][]time.Duration{}, past: newPast()}
}

// Past returns the recorded events.
func (m *Memory) Past() *Past { return m.past }

// Look returns the problems in a picture, and records it.
func (m *Memory) Look(p *Picture) []Verdict {
	m.now = make(map[string]time.Time, len(m.first))
	m.silent = map[string]time.Duration{}
	for _, proc := range p.Processes {
		if proc.Silent {
			lasted := m.lasting("silent/"+number(proc.Listener), p.At)
			if !proc.LastSpoke.IsZero() {
				lasted = max(lasted, p.At.Sub(proc.LastSpoke))
			}
			m.silent[proc.ID] = lasted
		}
	}
	m.learn(p)
	found := m.verdicts(p)
	m.first = m.now
	m.past.add(p, found)
	return found
}

// lasting records that a condition holds, and returns for how long it has held in every picture.
func (m *Memory) lasting(condition string, at time.Time) time.Duration {
	since, ok := m.now[condition]
	if !ok {
		if since, ok = m.first[condition]; !ok {
			since = at
		}
		m.now[condition] = since
	}
	return at.Sub(since)
}

// unanswered is how many questions in a row a silent process leaves unanswered. It may have been about to end at the
// first, or have had no CPU time for half a second, and its last answer may be as old as the last look.
const unanswered = 2

// quiet returns for how long a process has been silent, and whether that is long enough to report.
func (m *Memory) quiet(p *Process) (time.Duration, bool) {
	if p == nil || !p.Silent {
		return 0, false
	}
	d := m.silent[p.ID]
	return d, d >= m.limits.Confirm && p.unanswered >= unanswered
}

// learn records the holds that ended, and the queues.
func (m *Memory) learn(p *Picture) {
	holds := make(map[holdID]time.Duration, len(p.Keys))
	queues := map[string][]sample{}
	for _, k := range p.Keys {
		if k.Leads() {
			continue
		}
		for _, h := range k.Holders {
			holds[holdID{h.PID, h.Tag, k.ID, k.Namespace}] = h.Age
		}
		if old := m.queues[k.ID]; len(k.Waiters) > 0 || len(old) > 0 && p.At.Sub(old[len(old)-1].at) < 10*time.Second {
			queues[k.ID] = sampled(old, sample{p.At, len(k.Waiters)})
		}
	}
	for _, b := range p.Mailboxes {
		id := mailboxQueue(b)
		if old := m.queues[id]; b.Ready > 0 || len(old) > 0 && p.At.Sub(old[len(old)-1].at) < 10*time.Second {
			queues[id] = sampled(old, sample{p.At, b.Ready})
		}
	}
	for id, age := range m.holds {
		if now, still := holds[id]; !still || now < age {
			m.note("key/"+id.key, age)
			if id.name != "" {
				m.note("namespace/"+id.name, age)
			}
		}
	}
	m.holds, m.queues = holds, queues
}

// sampled returns the samples of a queue with the next one.
func sampled(all []sample, next sample) []sample {
	last := len(all) - 1
	switch {
	case last >= 0 && next.at.Sub(all[last].at) < time.Second:
		all[last].n = max(all[last].n, next.n)
	case last < 0 || next.n > 0:
		all = append(all, next)
	}
	return all[max(0, len(all)-queueKept):]
}

// note records the duration of a hold.
func (m *Memory) note(of string, age time.Duration) {
	old := m.usuals[of]
	if old == nil && len(m.usuals) >= maxHistory {
		for forget := range m.usuals { // any: those in use come back
			delete(m.usuals, forget)
			break
		}
	}
	old = append(old, age)
	m.usuals[of] = slices.Clone(old[max(0, len(old)-holdsKept):])
}

// usual returns the duration of nearly all holds of a key, or else of its namespace.
func (m *Memory) usual(k *Key) (time.Duration, bool) {
	for _, of := range []string{"key/" + k.ID, "namespace/" + k.Namespace} {
		if ages := m.usuals[of]; len(ages) >= holdsKnown {
			sorted := slices.Sorted(slices.Values(ages))
			return sorted[len(sorted)*9/10], true
		}
	}
	return 0, false
}

// queueBefore returns how many waited for a key some seconds ago.
func (m *Memory) queueBefore(id string, at time.Time) (n int, ago time.Duration, ok bool) {
	for _, s := range m.queues[id] { // the oldest first
		if ago := at.Sub(s.at); ago <= 30*time.Second {
			return s.n, ago, ago >= 2*time.Second
		}
	}
	return 0, 0, false
}
