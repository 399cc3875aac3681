package monitor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/namespace"
)

// The number of locks in one answer, unless the request sets it.
const (
	defaultLimit = 1000
	maxLimit     = 10_000
)

// A page is a part of a list.
type page struct {
	limit int
	after position // zero = from the start
}

// A position is the place of a lock in the list: its key, and how many locks of this key come
// before it, itself included. It is valid in every Snapshot.
type position struct {
	tag namespace.Tag
	n   int
}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.tag.ObjSubID, q.tag.ObjSubID), cmp.Compare(p.tag.ClassID, q.tag.ClassID),
		cmp.Compare(p.tag.ObjID, q.tag.ObjID), cmp.Compare(p.n, q.n))
}

func (p position) String() string {
	return fmt.Sprintf("%d.%d.%d.%d", p.tag.ObjSubID, p.tag.ClassID, p.tag.ObjID, p.n)
}

func parsePosition(text string) (position, error) {
	bits := []int{16, 32, 32, 31}
	fields := strings.Split(text, ".")
	var numbers [4]uint64
	for i := range fields {
		n, err := strconv.ParseUint(fields[i], 10, bits[min(i, 3)])
		if err != nil || len(fields) != len(numbers) {
			return position{}, fmt.Errorf("after=%q: use the next of an answer", text)
		}
		numbers[i] = n
	}
	tag := namespace.Tag{ObjSubID: uint16(numbers[0]), ClassID: uint32(numbers[1]), ObjID: uint32(numbers[2])}
	return position{tag, int(numbers[3])}, nil
}

// An answer is a Snapshot as JSON, with some of its locks.
type answer struct {
	Locks   []json.RawMessage `json:"locks"`
	Total   int               `json:"total"`          // matches of the filter, on all pages
	Next    string            `json:"next,omitempty"` // "" = this is the last page
	Server  Server            `json:"server"`
	Partial bool              `json:"partial"`
	Hidden  []string          `json:"hidden,omitempty"`
}

// answer builds a page of the matching locks. Each lock is encoded once, for all viewers.
func (f *flight) answer(which filter, p page) answer {
	s := &f.snapshot
	a := answer{Server: s.Server, Partial: s.Partial, Hidden: s.Hidden}
	var part []int // of the locks
	var at, last position
	for i := range s.Locks {
		l := &s.Locks[i]
		if at.tag != l.Tag {
			at = position{tag: l.Tag}
		}
		at.n++
		if !which.matches(l) {
			continue
		}
		a.Total++
		switch {
		case at.compare(p.after) <= 0:
		case len(part) < p.limit:
			part, last = append(part, i), at
		default:
			a.Next = last.String()
		}
	}
	a.Locks = f.encode(part)
	return a
}

// encode returns the JSON of some locks.
func (f *flight) encode(part []int) []json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.encoded == nil {
		f.encoded = make([]json.RawMessage, len(f.snapshot.Locks))
	}
	locks := make([]json.RawMessage, len(part))
	for n, i := range part {
		if f.encoded[i] == nil {
			body, err := json.Marshal(f.snapshot.Locks[i])
			if err != nil {
				panic("BUG: monitor: " + err.Error())
			}
			f.encoded[i] = body
		}
		locks[n] = f.encoded[i]
	}
	return locks
}
