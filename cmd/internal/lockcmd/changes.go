package lockcmd

import (
	"time"

	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A change is one line of watch. An event between two queries that left no trace has none.
type change struct {
	At     time.Time    `json:"at"`     // when the change was seen, by the server's clock
	Change string       `json:"change"` // "held", "waiting", "released" or "gone" (a waiter that got nothing)
	Lock   monitor.Lock `json:"lock"`   // as last seen
}

// A claim is one session's hold of, or wait for, one lock.
type claim struct {
	tag  namespace.Tag
	pid  uint32
	mode string
	// Process ids are reused; 0 when hidden.
	session int64
}

func claimOf(l monitor.Lock) claim {
	c := claim{tag: l.Tag, pid: l.PID, mode: l.Mode}
	if l.BackendStart != nil {
		c.session = l.BackendStart.UnixNano()
	}
	return c
}

// changes returns the differences in now. Ends come first: a lock is released before another
// session holds it.
func changes(before, now monitor.Snapshot) []change {
	old, current := claims(before), claims(now)
	var all []change
	for _, l := range before.Locks {
		if _, still := current[claimOf(l)]; !still {
			what := "gone"
			if l.Granted {
				what = "released"
			}
			all = append(all, change{now.Server.Now, what, l})
		}
	}
	for _, l := range now.Locks {
		if granted, known := old[claimOf(l)]; !known || granted != l.Granted {
			what := "waiting"
			if l.Granted {
				what = "held"
			}
			all = append(all, change{now.Server.Now, what, l})
		}
	}
	return all
}

// claims maps the claims of s to whether they are granted. (A session that holds a lock can wait
// for it only in the other mode.)
func claims(s monitor.Snapshot) map[claim]bool {
	all := make(map[claim]bool, len(s.Locks))
	for _, l := range s.Locks {
		all[claimOf(l)] = l.Granted
	}
	return all
}
