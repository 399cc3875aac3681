package web

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// A head is the head of a column of the table of keys.
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
		return "\U0010ffff"
	}
	return firstHolder(k).Who()
}

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

func (q *query) heads() (all []head) {
	for _, h := range []struct {
		text, sort string
		number     bool
	}{{"Key", "key", false}, {"Held by", "holder", false}, {"For", "held", true}, {"Waiting", "waiting", true}, {"Longest wait", "wait", true}} {
		one := head{Text: h.text, Number: h.number}
		if h.sort == q.Sort {
			one.Link, one.Sorted = q.link(map[string]string{"sort": ""}), "descending"
			if !h.number {
				one.Sorted = "ascending"
			}
		} else {
			one.Link = q.link(map[string]string{"sort": h.sort})
		}
		all = append(all, one)
	}
	worst := head{Text: "What is wrong"}
	if worst.Link = q.link(map[string]string{"sort": ""}); q.Sort == "" {
		worst.Link, worst.Sorted = "", "descending"
	}
	return append(all, worst)
}
