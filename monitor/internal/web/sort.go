package web

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// A column is one of a table.
type column struct {
	text, sort string // sort = "": the table cannot be sorted by it
	number     bool
}

// A head is the head of a column.
type head struct {
	Text, Link string
	Number     bool   // its cells are numbers
	Sorted     string // as aria-sort says it; "" = not
}

// orders sort keys by a column.
var orders = map[string]func(a, b *incident.Key) int{
	"key":     func(a, b *incident.Key) int { return cmp.Compare(a.Text, b.Text) },
	"holder":  func(a, b *incident.Key) int { return cmp.Compare(holderName(a), holderName(b)) },
	"held":    func(a, b *incident.Key) int { return cmp.Compare(b.Since(), a.Since()) },
	"waiting": func(a, b *incident.Key) int { return cmp.Compare(len(b.Waiters), len(a.Waiters)) },
	"wait":    func(a, b *incident.Key) int { return cmp.Compare(b.Longest(), a.Longest()) },
}

// holderName is what the column of holders shows of a key. Keys that nobody holds come last.
func holderName(k *incident.Key) string {
	if len(k.Holders) == 0 {
		return nameless("")
	}
	return firstHolder(k).Who()
}

// nameless returns a name to sort by. Those without a name come last.
func nameless(name string) string { return cmp.Or(name, "\U0010ffff") }

// sort sorts by the column of the query. Without one, those in trouble stay first.
func (q *query) sort(keys []*incident.Key) {
	if order := orders[q.Sort]; order != nil {
		slices.SortStableFunc(keys, order)
	}
}

// link returns the address of the query with some values changed.
func (q *query) link(changed map[string]string) string {
	values := url.Values{}
	for name, value := range map[string]string{"find": q.Find, "older": q.Older, "sort": q.Sort} {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, value := range changed {
		values.Set(name, value)
		if value == "" {
			values.Del(name)
		}
	}
	return "?" + values.Encode()
}

// heads returns the heads of columns, which sort by them, or not any more.
func (q *query) heads(columns ...column) (all []head) {
	for _, c := range columns {
		one := head{Text: c.text, Number: c.number}
		switch c.sort {
		case "":
		case q.Sort:
			one.Link, one.Sorted = q.link(map[string]string{"sort": ""}), map[bool]string{true: "descending", false: "ascending"}[c.number]
		default:
			one.Link = q.link(map[string]string{"sort": c.sort})
		}
		all = append(all, one)
	}
	return all
}

// keyHeads are the heads of the table of keys.
func (q *query) keyHeads() []head {
	all := q.heads(column{"Key", "key", false}, column{"Held by", "holder", false}, column{"For", "held", true}, column{"Waiting", "waiting", true}, column{"Longest wait", "wait", true})
	worst := head{Text: "What is wrong"}
	if worst.Link = q.link(map[string]string{"sort": ""}); q.Sort == "" {
		worst.Link, worst.Sorted = "", "descending"
	}
	return append(all, worst)
}
