package monitor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A place is a session's position at a key; a Snapshot sorts by it. A waiter takes the key's
// turnstile first (namespace.Tag.Turnstile) and keeps it until it has the key. The others wait for
// the turnstile. They all wait for the key, and the turnstile is not shown as a separate lock.
type place int

const (
	holds             place = iota
	waits                   // in the server's queue of the key
	betweenSteps            // has the turnstile, and is in no queue at this instant
	waitsForTurnstile       // in the server's queue of the turnstile
)

// A party is a session that holds a key or waits for it.
type party struct {
	tag namespace.Tag
	pid uint32
}

// mergeTurnstiles turns the rows of turnstiles into rows of their keys. A turnstile's number does
// not reveal its key. The keys in rows, and those of the previous Snapshot, do: a key that is
// briefly free between two holders thus keeps its waiters. A turnstile whose key is in neither is
// shown as a single key.
//
// A try in shared mode has the turnstile for one statement, and may look like a wait.
func (a *assembler) mergeTurnstiles(rows []row) []row {
	a.learnTurnstiles(rows)
	parties := make(map[party]bool, len(rows))
	for i := range rows {
		r := &rows[i]
		if _, ok := a.keys[r.tag()]; !ok {
			parties[party{r.tag(), r.PID}] = true
			if !r.Granted {
				r.place = waits
			}
		}
	}
	merged := rows[:0]
	for _, r := range rows {
		if key, ok := a.keys[r.tag()]; ok {
			p := party{key, r.PID}
			switch {
			case !r.Granted:
				r.place = waitsForTurnstile
			case parties[p]: // its other row shows its state
				continue
			default:
				r.place, r.Granted = betweenSteps, false
			}
			parties[p] = true
			r.ClassID, r.ObjID, r.ObjSubID = key.ClassID, key.ObjID, key.ObjSubID
		}
		merged = append(merged, r)
	}
	slices.SortStableFunc(merged, func(r, o row) int { return cmp.Or(r.tag().Compare(o.tag()), cmp.Compare(r.place, o.place)) })
	a.forgetTurnstiles(merged)
	return merged
}

// learnTurnstiles adds the turnstiles of the keys in rows.
func (a *assembler) learnTurnstiles(rows []row) {
	if a.keys == nil {
		a.keys = make(map[namespace.Tag]namespace.Tag, len(rows))
	}
	for group := range byKey(rows, row.tag) {
		tag := group[0].tag()
		a.keys[turnstile.Of(tag)] = tag
	}
	maps.Copy(a.keys, a.heard.keys) // includes keys that no session has, such as a semaphore's own
}

// forgetTurnstiles keeps only the turnstiles of the keys in rows.
func (a *assembler) forgetTurnstiles(rows []row) {
	shown := make(map[namespace.Tag]bool, len(rows))
	for group := range byKey(rows, row.tag) {
		shown[group[0].tag()] = true
	}
	maps.DeleteFunc(a.keys, func(_, key namespace.Tag) bool { return !shown[key] })
}
