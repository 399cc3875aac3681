package overview

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// The orders of rows.
const (
	ByKey     = "key"
	ByTrouble = "trouble" // silent holders first, then by the total of all waits
	ByHeld    = "held"    // the oldest holds first
	ByWait    = "wait"    // the oldest waits first
	ByWaiters = "waiters" // the longest queues first
)

// Orders returns the orders of rows, in the sequence of key presses.
func Orders() []string { return []string{ByTrouble, ByWait, ByWaiters, ByHeld, ByKey} }

// Sort orders rows.
func Sort(rows []*Row, by string) {
	waited := func(r, o *Row) int { return cmp.Compare(o.waited(), r.waited()) }
	wait := func(r, o *Row) int { return cmp.Compare(o.OldestWait(), r.OldestWait()) }
	waiters := func(r, o *Row) int { return cmp.Compare(len(o.Waiters), len(r.Waiters)) }
	held := func(r, o *Row) int { return cmp.Compare(o.OldestHold(), r.OldestHold()) }
	key := func(r, o *Row) int { return cmp.Or(r.Tag.Compare(o.Tag), cmp.Compare(r.Key, o.Key)) }
	silent := func(r, o *Row) int { return number(o.Silent()) - number(r.Silent()) }
	order := map[string][]func(r, o *Row) int{
		ByTrouble: {silent, waited, wait, held}, ByWait: {wait, waiters}, ByWaiters: {waiters, wait}, ByHeld: {held},
	}[by]
	slices.SortStableFunc(rows, func(r, o *Row) int {
		for _, compare := range order {
			if c := compare(r, o); c != 0 {
				return c
			}
		}
		return key(r, o)
	})
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A Filter keeps the rows that meet all its conditions. The zero Filter keeps all.
type Filter struct {
	Prefix     string        // of the key
	Tag        namespace.Tag // of one of its locks; the zero Tag = any
	App        string        // a part of the name of a holder or a waiter, in any case
	Text       string        // a part of the key, a name, a label or a note, in any case
	LongerThan time.Duration // the shortest hold or wait
	Waiting    bool          // only keys with waiters
	Namespaces []string      // names, or numbers, one of which is the key's
}

// Apply returns the rows that the filter keeps.
func (f Filter) Apply(rows []*Row) []*Row {
	kept := make([]*Row, 0, len(rows))
	for _, r := range rows {
		if f.keeps(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

func (f Filter) keeps(r *Row) bool {
	text := r.Key
	if r.namespace != "" && !strings.Contains(text, "/") {
		text = r.namespace + "/" + text // the name of the key is unknown, but its namespace is known
	}
	switch {
	case f.Tag.Valid() && f.Tag != r.Tag && !slices.Contains(r.Tags, f.Tag),
		!strings.HasPrefix(text, f.Prefix) && !strings.HasPrefix(r.Key, f.Prefix),
		f.Waiting && len(r.Waiters) == 0,
		f.LongerThan > 0 && max(r.OldestHold(), r.OldestWait()) < f.LongerThan,
		len(f.Namespaces) > 0 && !slices.ContainsFunc(r.Namespaces(), func(name string) bool { return slices.Contains(f.Namespaces, name) }),
		!r.has(f.App, func(p Party) []string { return []string{p.Name} }):
		return false
	}
	return contains(text, f.Text) || f.Text != "" && r.has(f.Text, func(p Party) []string { return []string{p.Name, p.Label, p.Note} })
}

// Namespaces returns the known name and number of the key's namespace.
func (r *Row) Namespaces() []string {
	var all []string
	if name, _, ok := strings.Cut(r.Key, "/"); ok {
		all = append(all, name)
	} else if r.namespace != "" {
		all = append(all, r.namespace)
	}
	if k1, _, ok := r.Tag.Pair(); ok {
		return append(all, strconv.Itoa(int(k1)))
	}
	if number, ok := r.Tag.NamespaceNumber(); ok {
		all = append(all, strconv.Itoa(number))
	}
	return all
}

// has reports whether a text of a holder or waiter contains part.
func (r *Row) has(part string, texts func(Party) []string) bool {
	match := func(p Party) bool {
		return slices.ContainsFunc(texts(p), func(text string) bool { return contains(text, part) })
	}
	return part == "" || slices.ContainsFunc(r.Holders, match) || slices.ContainsFunc(r.Waiters, match)
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
