// Package tabletrace records the events of a Locker's lock table and replays them on a second table. It accepts a trace
// if the second table returns the same commands and the carrier did only what the table commanded. Also, no session may
// have been asked for a lock that it has.
package tabletrace

import (
	"fmt"
	"slices"
	"time"
	"weak"

	"github.com/pglatch/pglatch/internal/locktable"
)

// A Record is one event. Connections, requests and holders are numbers.
type Record struct {
	locktable.Event // without pointers

	conn, request, holder int // 0 = none
	caller                caller
	commands              []command // of EventCommands
}

// A command is a locktable.Command with numbers.
type command struct {
	kind          locktable.Kind
	conn, request int
	failed        bool // the request
	holders       []int
	tag           locktable.Tag
	pool          bool
	ahead         int
	delay         time.Duration
}

func sameCommands(a, b []command) bool {
	return slices.EqualFunc(a, b, func(x, y command) bool {
		return x.kind == y.kind && x.conn == y.conn && x.request == y.request && x.failed == y.failed && slices.Equal(x.holders, y.holders) &&
			x.tag == y.tag && x.pool == y.pool && x.ahead == y.ahead && x.delay == y.delay
	})
}

// A caller is the parameters of a request, or of a holder.
type caller struct {
	request locktable.Request // its parameters
	around  []int             // the holders that the caller already has, the last one first; -1 = one of another table
	slotOf  locktable.Tag
}

func (r Record) String() string {
	return fmt.Sprintf("%s conn=%d request=%d holder=%d tag=%v %+v", r.Kind, r.conn, r.request, r.holder, r.Tag, r.commands)
}

// A recorder turns the events of one table into records.
type recorder struct {
	numbers map[any]int
	last    int
	take    func(Record)
}

// record makes a table pass each record to take, under the mutex of its carrier.
func record(t *locktable.Table, take func(Record)) {
	r := &recorder{numbers: make(map[any]int), take: take}
	t.Record(func(e locktable.Event) { r.event(t, e) })
}

// number returns the number of an object, and does not keep it from being collected; fresh = the object is reused for
// something new.
func number[T any](r *recorder, of *T, fresh bool) int {
	p := weak.Make(of)
	if _, ok := r.numbers[p]; !ok || fresh {
		r.last++
		r.numbers[p] = r.last
	}
	return r.numbers[p]
}

func (r *recorder) event(t *locktable.Table, e locktable.Event) {
	rec := Record{Event: e}
	rec.Conn, rec.Request, rec.Holder, rec.Commands = nil, nil, nil, nil
	rec.Replies = slices.Clone(e.Replies)
	if e.Conn != nil {
		rec.conn = e.Conn.Number()
	}
	if e.Holder != nil {
		rec.holder = number(r, e.Holder, false)
	}
	if e.Request != nil {
		begins := e.Kind == locktable.EventEnter || e.Kind == locktable.EventRelease || e.Kind == locktable.EventPing
		rec.request = number(r, e.Request, begins)
	}
	switch e.Kind {
	case locktable.EventEnter:
		rec.holder = number(r, e.Request.Holder, false)
		rec.caller = r.callerOf(t, e.Request)
	case locktable.EventCommands:
		rec.commands = r.numbered(e.Commands)
	}
	r.take(rec)
}

func (r *recorder) callerOf(t *locktable.Table, of *locktable.Request) caller {
	c := caller{slotOf: of.Holder.SlotOf, request: locktable.Request{
		Tag: of.Tag, Mode: of.Mode, Slots: slices.Clone(of.Slots), First: of.First, Gate: of.Gate, Deadline: of.Deadline,
		Try: of.Try, Part: of.Part, Abroad: of.Abroad,
	}}
	for h := of.Holder.Around; h != nil; h = h.Around {
		if h.Of(t) {
			c.around = append(c.around, number(r, h, false))
		} else {
			c.around = append(c.around, -1)
		}
	}
	return c
}

// numbered returns a table's commands.
func (r *recorder) numbered(commands []locktable.Command) (all []command) {
	for i := range commands {
		c := &commands[i]
		n := command{kind: c.Kind, tag: c.Tag, pool: c.Pool, ahead: c.Ahead, delay: c.Delay}
		if c.Conn != nil {
			n.conn = c.Conn.Number()
		}
		if c.Request != nil {
			n.request, n.failed = number(r, c.Request, false), c.Request.Err() != nil
		}
		for _, h := range c.Holders {
			n.holders = append(n.holders, number(r, h, false))
		}
		all = append(all, n)
	}
	return all
}

// Nothing reports whether the record is a call of Commands that returned none.
func (r Record) Nothing() bool { return len(r.commands) == 0 }
