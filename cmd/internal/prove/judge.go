package prove

import (
	"cmp"
	"strings"
)

// A Status is what the server did in one proof.
type Status string

// The statuses of a proof.
const (
	Works     Status = "works"
	WorksWith Status = "works with" // it works with the restriction that Why names
	DoesNot   Status = "does not"   // it failed, or a pooler makes it impossible
	Unknown   Status = "unknown"    // an answer did not come in time, or the server refused a question
)

// A Result is one line of the table.
type Result struct {
	Proof  string `json:"proof"`
	Status Status `json:"status"`
	Why    string `json:"why"`
	Source string `json:"source"` // a page of the PostgreSQL manual
}

// A proof is a property of a server, as a list of answers that the server must give.
type proof struct {
	name    string
	holds   string // Why, if the server gave each answer
	source  string
	session bool // it takes session locks or changes a session, which must then belong to this client alone
	expects []expectation
	observe func(*exam)
}

// An expectation is one answer that the server must give.
type expectation struct {
	id       string
	wrong    string // what another answer means
	with     bool   // another answer is a restriction, and no failure
	optional bool   // the proof holds without an answer
}

// An observation has the answers that the server gave. An expectation without an entry got no answer.
type observation struct {
	seen   map[string]bool
	detail map[string]string // replaces expectation.wrong
	doubt  string            // why an answer is missing
}

// judge compares the expected answers with the observed ones. A wrong answer outweighs a missing one.
func (p *proof) judge(o observation) Result {
	r := Result{Proof: p.name, Status: Works, Why: p.holds, Source: Manual + p.source}
	var wrong, with []string
	missing := false
	for _, e := range p.expects {
		ok, answered := o.seen[e.id]
		text := cmp.Or(o.detail[e.id], e.wrong)
		switch {
		case !answered:
			missing = missing || !e.optional
		case ok:
		case e.with:
			with = append(with, text)
		default:
			wrong = append(wrong, text)
		}
	}
	switch {
	case wrong != nil:
		r.Status, r.Why = DoesNot, strings.Join(wrong, "; ")
	case missing:
		r.Status, r.Why = Unknown, cmp.Or(o.doubt, noAnswer)
	case with != nil:
		r.Status, r.Why = WorksWith, strings.Join(with, "; ")
	}
	return r
}

// Manual is where the sources are.
const Manual = "https://www.postgresql.org/docs/current/"

const (
	noAnswer = "no answer in time"
	notTried = "not tried: the pooler gives one session to many clients, and they would share its locks and settings"
)

// notShared is the result of a proof that needs a session of its own, behind a pooler that shares sessions.
func (p *proof) notShared() Result {
	return Result{Proof: p.name, Status: DoesNot, Why: notTried, Source: Manual + p.source}
}
