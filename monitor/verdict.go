package monitor

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// A Verdict is something that is wrong with the locks of a database, or will be. What each
// Name means, and what to do, is in docs/incidents.md.
type Verdict struct {
	Name     string    `json:"name"`              // "deadlock", "holder-silent"…: one of VerdictNames
	Severity string    `json:"severity"`          // "critical", "warning" or "note"
	Key      string    `json:"key,omitempty"`     // that it is about, as Lock.Key.Text
	Subject  string    `json:"subject,omitempty"` // what distinguishes it from others of its name and key
	Text     string    `json:"text"`              // a sentence
	Evidence []string  `json:"evidence"`
	Advice   string    `json:"advice"`
	Doc      string    `json:"doc"`               // where it is explained, from the root of the repository
	Since    time.Time `json:"since"`             // the first of the looks that all saw it, by the server's clock
	Waiters  int       `json:"waiters,omitempty"` // whom it stops
}

// VerdictNames are the names of all verdicts.
func VerdictNames() []string { return incident.Names() }

// Verdicts returns what is wrong, the worst first, as of the same query as Snapshot. Some need to be
// seen for 1.5 s before they are told, and some are told by comparison with the past: they
// need a Monitor that looks again and again, as with Config.Record. It shares its query with all viewers;
// errors are those of Snapshot.
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
	return Verdict{
		Name: v.Name, Severity: string(v.Severity), Key: v.Key, Subject: v.Subject, Text: v.Text, Evidence: v.Evidence,
		Advice: v.Advice, Doc: v.Doc, Since: v.Since, Waiters: v.Waiters,
	}
}

// lookCloser is look, for a flight that is judged.
func (m *Monitor) lookCloser(ctx context.Context) (*flight, error) {
	m.judging.Store(true)
	for {
		f, err := m.look(ctx)
		if err != nil || f.picture != nil {
			return f, err
		}
		m.mu.Lock() // it began before anybody wanted to know
		if m.flight == f {
			m.flight = nil
		}
		m.mu.Unlock()
	}
}

// judge says what is wrong in a Snapshot, for who wants to know.
func (m *Monitor) judge(f *flight, at time.Time) {
	if !m.judging.Load() {
		return
	}
	f.picture = incident.Build(m.input(&f.snapshot, f.snapshot.Server.Now.Sub(at)))
	f.verdicts = m.memory.Look(f.picture)
	f.past = *m.memory.Past()
}

// linkID identifies a key in links, for as long as the Monitor is there, without telling it.
func (m *Monitor) linkID(tag namespace.Tag) string {
	b := append(make([]byte, 0, 32), m.secret[:]...)
	b = binary.BigEndian.AppendUint32(b, tag.ClassID)
	b = binary.BigEndian.AppendUint32(b, tag.ObjID)
	b = binary.BigEndian.AppendUint16(b, tag.ObjSubID)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
