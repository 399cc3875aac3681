package monitor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// A Verdict is an existing or imminent problem with the locks of a database. docs/how-to/incidents.md explains
// each Name, and what to do.
type Verdict struct {
	Name     string    `json:"name"`              // "deadlock", "holder-silent"…: one of VerdictNames
	Severity string    `json:"severity"`          // "critical", "warning" or "note"
	Key      string    `json:"key,omitempty"`     // the key concerned, as Lock.Key.Text
	Subject  string    `json:"subject,omitempty"` // distinguishes it from others of its name and key
	Text     string    `json:"text"`              // a sentence
	Evidence []string  `json:"evidence"`
	Advice   string    `json:"advice"`
	Doc      string    `json:"doc"`               // its explanation, from the root of the repository
	Since    time.Time `json:"since"`             // the first of the consecutive queries that saw it, by the server's clock
	Waiters  int       `json:"waiters,omitempty"` // that it blocks
	Who      []string  `json:"who,omitempty"`     // up to 5 processes, nodes, sessions or hosts that it is about
	// Consequences are the texts of verdicts that will end with this one. For a silent holder, for example, that
	// its key is held for long.
	Consequences []string `json:"consequences,omitempty"`
	// Folded are the verdicts of Consequences. They are still so, and not over.
	Folded []Verdict `json:"-"`
}

// VerdictNames are the names of all verdicts.
func VerdictNames() []string { return incident.Names() }

// Verdicts returns the current problems, the worst first, from the same query as Snapshot. Some problems
// are reported only after they were seen for 1.5 s, and some are found by comparison with the past. Both
// kinds need a Monitor that queries repeatedly, as with Config.Record. Verdicts shares its query with
// all viewers; its errors are those of Snapshot.
func (m *Monitor) Verdicts(ctx context.Context) ([]Verdict, error) {
	f, err := m.lookCloser(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Verdict, len(f.verdicts))
	for i := range f.verdicts {
		all[i] = verdict(&f.verdicts[i])
	}
	return all, nil
}

func verdict(v *incident.Verdict) Verdict {
	var consequences []string
	var folded []Verdict
	for i := range v.Consequences {
		consequences, folded = append(consequences, v.Consequences[i].Text), append(folded, verdict(&v.Consequences[i]))
	}
	return Verdict{
		Who: v.Who, Consequences: consequences, Folded: folded,
		Name: v.Name, Severity: string(v.Severity), Key: v.Key, Subject: v.Subject, Text: v.Text, Evidence: v.Evidence,
		Advice: v.Advice, Doc: v.Doc, Since: v.Since, Waiters: v.Waiters,
	}
}

// lookCloser is look for a flight with verdicts.
func (m *Monitor) lookCloser(ctx context.Context) (*flight, error) {
	m.judging.Store(true)
	for {
		f, err := m.look(ctx)
		if err != nil || f.picture != nil {
			return f, err
		}
		m.mu.Lock() // the flight began before a viewer wanted verdicts
		if m.flight == f {
			m.flight = nil
		}
		m.mu.Unlock()
	}
}

// judge finds the problems in a Snapshot, if a viewer wants them.
func (m *Monitor) judge(f *flight, at time.Time) {
	if !m.judging.Load() {
		return
	}
	f.fleet = m.assembler.fleet
	in := m.input(&f.snapshot, f.snapshot.Server.Now.Sub(at))
	if f.fleet != nil {
		in.Locks = f.fleet.Locks
	}
	f.picture = incident.Build(in)
	f.verdicts = m.memory.Look(f.picture)
	f.past = *m.memory.Past()
}

// linkID identifies a key in links, for the lifetime of the Monitor, without revealing it.
func (m *Monitor) linkID(tag namespace.Tag) string {
	b := append(make([]byte, 0, 32), m.secret[:]...)
	b = binary.BigEndian.AppendUint32(b, tag.ClassID)
	b = binary.BigEndian.AppendUint32(b, tag.ObjID)
	b = binary.BigEndian.AppendUint16(b, tag.ObjSubID)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
