package monitor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A place is where a session stands at a key; a Snapshot has them in this order. Who
// waits for a key takes the key's turnstile first (namespace.Tag.Turnstile) and keeps
// it until it has the key, while the others wait for the turnstile. They all wait for
// the key, and the turnstile is no lock of its own.
type place int

const (
	holds             place = iota
	waits                   // in the server's queue of the key
	betweenSteps            // it has the turnstile, and is in no queue at this instant
	waitsForTurnstile       // in the server's queue of the turnstile
)

// A party is a session that holds a key, or waits for it.
type party struct {
	tag namespace.Tag
	pid uint32
}

// mergeTurnstiles makes the rows of turnstiles rows of their keys. A number does not
// say whose turnstile it is: it is known from the keys in rows, and by those of the
// Snapshot before, so that a key which is free for an instant between two holders
// keeps its waiters. A turnstile whose key is in neither is shown as a single key.
//
// A try in shared mode has the turnstile for one statement, and may be seen as a wait.
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
			case parties[p]: // its other row says what it does
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

// learnTurnstiles adds those of the keys in rows.
func (a *assembler) learnTurnstiles(rows []row) {
	if a.keys == nil {
		a.keys = make(map[namespace.Tag]namespace.Tag, len(rows))
	}
	for group := range byKey(rows, row.tag) {
		tag := group[0].tag()
		a.keys[turnstile.Of(tag)] = tag
	}
	maps.Copy(a.keys, a.heard.keys) // also of keys that nobody has, as a semaphore's own
}

// forgetTurnstiles keeps those of the keys in rows.
func (a *assembler) forgetTurnstiles(rows []row) {
	shown := make(map[namespace.Tag]bool, len(rows))
	for group := range byKey(rows, row.tag) {
		shown[group[0].tag()] = true
	}
	maps.DeleteFunc(a.keys, func(_, key namespace.Tag) bool { return !shown[key] })
}
