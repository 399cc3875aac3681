package web

import (
	"cmp"
	"slices"

	"github.com/pglatch/pglatch/internal/incident"
)

// A badge is a verdict in a row.
type badge struct{ Severity, Name string }

// A row is a key in the table.
type row struct {
	*incident.Key

	First          *incident.Holder // nil = nobody holds it
	Since, Longest age
	Badges         []badge
}

// id identifies the row in the page.
func (r row) id() string { return "k-" + r.ID }

// firstHolder is the holder of a key that its row shows: the oldest.
func firstHolder(k *incident.Key) *incident.Holder {
	return slices.MaxFunc(k.Holders, func(a, b *incident.Holder) int { return cmp.Compare(a.Age, b.Age) })
}

func (v *view) row(k *incident.Key, badges []badge) row {
	w := row{Key: k, Badges: badges}
	if len(k.Holders) > 0 {
		w.First = firstHolder(k)
		w.Since = v.age(w.id()+"/held", w.First.Age, w.First.Exact)
	}
	if len(k.Waiters) > 0 {
		w.Longest = v.age(w.id()+"/wait", k.Longest(), k.Waiters[0].Process != nil)
	}
	return w
}
