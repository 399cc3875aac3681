package check

import (
	"cmp"
	"slices"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// A span is the time for which a fault hits a process; an empty process is all of them.
type span struct {
	process     string
	from, until int64
}

const forever = 1<<63 - 1

// disturbances are the faults of a run.
type disturbances []span

// with adds a fault, or ends one. A fault without an end lasts until the run ends, or is over if it is a call.
func (d disturbances) with(e trace.Event) disturbances {
	if e.To != trace.Ends {
		until := int64(forever)
		if e.Asked != 0 {
			until = e.Boot
		}
		return append(d, span{e.Who, cmp.Or(e.Asked, e.Boot), until})
	}
	for i := range slices.Backward(d) {
		if d[i].process == e.Who && d[i].until == forever {
			d[i].until = e.Boot
			break
		}
	}
	return d
}

// hit reports whether a fault hits a process in a time.
func (d disturbances) hit(process string, from, until int64) bool {
	return slices.ContainsFunc(d, func(s span) bool {
		return (s.process == "" || s.process == process) && s.from <= until && s.until >= from
	})
}
