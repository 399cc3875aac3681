package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/incident"
)

// A column is one of a table of T.
type column[T any] struct {
	text   string
	number bool             // its cells are numbers
	sort   string           // its name in an address; "" = the table cannot be sorted by it
	order  func(a, b T) int // numbers descend
}

// columns are those of a table.
type columns[T any] []column[T]

// by returns the order of a name in an address; nil = there is none.
func (all columns[T]) by(sort string) func(a, b T) int {
	for _, c := range all {
		if c.sort == sort && sort != "" {
			return c.order
		}
	}
	return nil
}

// sort sorts rows by the column of the query. Without one, those in trouble stay first.
func (all columns[T]) sort(q *query, rows []T) {
	if order := all.by(q.Sort); order != nil {
		slices.SortStableFunc(rows, order)
	}
}

// names returns the names in an address.
func (all columns[T]) names() (names []string) {
	for _, c := range all {
		if c.sort != "" {
			names = append(names, c.sort)
		}
	}
	return names
}

// heads returns the heads of the columns, which sort by them, or not any more.
func (all columns[T]) heads(q *query) (heads []head) {
	for _, c := range all {
		one := head{Text: c.text, Number: c.number}
		switch c.sort {
		case "":
		case q.Sort:
			one.Link, one.Sorted = q.link(map[string]string{"sort": ""}), map[bool]string{true: "descending", false: "ascending"}[c.number]
		default:
			one.Link = q.link(map[string]string{"sort": c.sort})
		}
		heads = append(heads, one)
	}
	return heads
}

// plain returns heads of the columns that sort nothing.
func (all columns[T]) plain() (heads []head) {
	for _, c := range all {
		heads = append(heads, head{Text: c.text, Number: c.number})
	}
	return heads
}

// readSort takes the order of an address. It returns a problem if none of names is it.
func (q *query) readSort(values url.Values, names ...string) string {
	if q.Sort = values.Get("sort"); q.Sort != "" && !slices.Contains(names, q.Sort) {
		return "sort=" + strconv.Quote(q.Sort) + ": use " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
	}
	return ""
}

// A head is the head of a column.
type head struct {
	Text, Link string
	Number     bool   // its cells are numbers
	Sorted     string // as aria-sort says it; "" = not
}

var keyColumns = columns[*incident.Key]{
	{"Key", false, "key", func(a, b *incident.Key) int { return cmp.Compare(a.Text, b.Text) }},
	{"Held by", false, "holder", func(a, b *incident.Key) int { return cmp.Compare(holderName(a), holderName(b)) }},
	{"For", true, "held", func(a, b *incident.Key) int { return cmp.Compare(b.Since(), a.Since()) }},
	{"Waiting", true, "waiting", func(a, b *incident.Key) int { return cmp.Compare(len(b.Waiters), len(a.Waiters)) }},
	{"Longest wait", true, "wait", func(a, b *incident.Key) int { return cmp.Compare(b.Longest(), a.Longest()) }},
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

// keyHeads are the heads of the table of keys.
func (q *query) keyHeads() []head {
	all := keyColumns.heads(q)
	worst := head{Text: "What is wrong"}
	if worst.Link = q.link(map[string]string{"sort": ""}); q.Sort == "" {
		worst.Link, worst.Sorted = "", "descending"
	}
	return append(all, worst)
}
