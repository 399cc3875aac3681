package judge

import (
	"strings"

	"github.com/pglatch/pglatch/leader/driver"
)

// Events checks the events of one node in one election, or of one shard: terms rise, each leadership ends once in its last
// term, and the next one begins afterwards. A stopped node leads nothing.
type Events struct {
	Leads bool        // acquired, and not yet released or lost
	Term  driver.Term // the last one
}

// See checks the next event: acquired, recovered, released, lost or stopped, in any case. It returns what is wrong, or
// an empty text. Other events are ignored.
func (e *Events) See(event string, term driver.Term) (wrong string) {
	led, last := e.Leads, e.Term
	switch strings.ToLower(event) {
	case "acquired":
		e.Leads, e.Term = true, term
		if led || term.Compare(last) <= 0 {
			return "it leads already, or the term does not rise"
		}
	case "recovered":
		e.Term = term
		if !led || term.Compare(last) <= 0 {
			return "it does not lead, or the term does not rise"
		}
	case "released", "lost":
		e.Leads = false
		if !led || term != last {
			return "it does not lead in this term"
		}
	case "stopped":
		if led {
			return "it leads still"
		}
	}
	return ""
}
