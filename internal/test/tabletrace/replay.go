package tabletrace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"weak"

	"github.com/pglatch/pglatch/internal/locktable"
)

// A replayer is a second table that receives the events of a first one, and the record of what its carrier may do.
type replayer struct {
	recorder // numbers the objects in the second table's commands

	table    *locktable.Table
	other    *locktable.Table // its holders stand for those of all other tables
	conns    map[int]*line
	requests map[int]*locktable.Request // unsettled requests
	holders  map[int]*locktable.Holder
	timers   map[timer]int // commanded timers that have not fired
	events   int
	err      error // the first error
}

type timer struct {
	kind locktable.Kind
	tag  locktable.Tag
	pool bool
}

// A line is a connection, and the commands that its carrier has not executed yet.
type line struct {
	node      *locktable.Conn
	dialing   bool
	driving   bool
	batch     []*locktable.Op
	attending bool
	step      locktable.Step
	stepping  bool
	lent      bool
	closing   bool
	gone      bool                   // everything has ended, except perhaps the waiting goroutine
	has       map[locktable.Tag]bool // the locks of its session
}

// errTrace means that a trace is invalid.
var errTrace = errors.New("the trace is not accepted")

func newReplayer(of *locktable.Table) *replayer {
	return &replayer{
		recorder: recorder{numbers: make(map[any]int)},
		table:    of.Twin(), other: of.Twin(),
		conns: make(map[int]*line), requests: make(map[int]*locktable.Request), holders: make(map[int]*locktable.Holder), timers: make(map[timer]int),
	}
}

func (p *replayer) wrong(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: event %d: %s", errTrace, p.events, fmt.Sprintf(format, args...))
	}
}

// feed replays the next event. After a first error it does nothing.
func (p *replayer) feed(r Record) {
	if p.err != nil {
		return
	}
	p.events++
	defer func() {
		if v := recover(); v != nil { // an invalid trace can cause any panic
			p.wrong("%v: panic: %v", r, v)
		}
	}()
	switch {
	case r.Kind == locktable.EventCommands:
		p.commands(r)
	case r.conn != 0:
		switch l := p.conns[r.conn]; {
		case l != nil:
			p.carrierEvent(l, r)
		case r.Kind != locktable.EventEnd && r.Kind != locktable.EventVerified && r.Kind != locktable.EventRested: // these may concern a connection that has just gone
			p.wrong("%v: there is no such connection", r)
		}
	case r.request != 0 && r.Kind != locktable.EventRelease:
		p.callerEvent(r)
	case r.holder != 0:
		p.holderEvent(r)
	default:
		p.tableEvent(r)
	}
	if err := p.table.Broken(); err != nil {
		p.wrong("%v: %v", r, err)
	}
}

// commands compares the commands of both tables, and records them.
func (p *replayer) commands(r Record) {
	commands := p.table.Commands()
	if now := p.numbered(commands); !sameCommands(now, r.commands) {
		p.wrong("it commanded %+v, and commands %+v now", r.commands, now)
		return
	}
	for i := range commands {
		p.command(&commands[i])
	}
}

func (p *replayer) command(c *locktable.Command) {
	var l *line
	if c.Conn != nil {
		l = p.lineOf(c.Conn)
	}
	switch c.Kind {
	case locktable.Dial:
		l.dialing = true
	case locktable.Drive, locktable.Attend:
		if l.used() {
			p.wrong("connection %d is given to two", c.Conn.Number())
		}
		l.driving, l.attending = c.Kind == locktable.Drive, c.Kind == locktable.Attend
	case locktable.Close:
		if l.used() || l.closing {
			p.wrong("connection %d is closed while it is used, or twice", c.Conn.Number())
		}
		l.closing = true
	case locktable.Settle:
		n := number(&p.recorder, c.Request, false)
		if p.requests[n] == nil {
			p.wrong("request %d is settled, which nobody made, or twice", n)
		}
		delete(p.requests, n)
		delete(p.numbers, weak.Make(c.Request))
	case locktable.Pause, locktable.Reopen, locktable.Poll:
		p.timers[timer{c.Kind, c.Tag, c.Pool}]++
	case locktable.Abort, locktable.Interrupt, locktable.Wake, locktable.Watch, locktable.Rest, locktable.Lose, locktable.Wait, locktable.Suspect, locktable.Break:
	}
}

func (p *replayer) lineOf(n *locktable.Conn) *line {
	l := p.conns[n.Number()]
	if l == nil {
		l = &line{node: n, has: make(map[locktable.Tag]bool)}
		p.conns[n.Number()] = l
	}
	return l
}

// used reports whether the session is in use.
func (l *line) used() bool { return l.driving || l.batch != nil || l.attending || l.lent }

// goes records that a connection has ended completely.
func (p *replayer) goes(l *line) {
	if l.gone = true; !l.attending {
		delete(p.conns, l.node.Number())
	}
}

// went records that a timer fired.
func (p *replayer) went(kind locktable.Kind, tag locktable.Tag, pool bool) {
	t := timer{kind, tag, pool}
	if p.timers[t] == 0 {
		p.wrong("a timer went off that nobody set: %v", t)
	}
	if p.timers[t]--; p.timers[t] == 0 {
		delete(p.timers, t)
	}
}

func (p *replayer) tableEvent(r Record) {
	switch r.Kind {
	case locktable.EventCapacity:
		p.table.SetCapacity(r.Counts[0], r.Counts[1])
	case locktable.EventClose:
		p.table.Close(r.At, r.Err)
	case locktable.EventDialFrom:
		p.table.DialFrom(r.At)
	case locktable.EventBorrow:
		if n := p.table.Borrow(r.At); n != nil && n.Phase() == locktable.Lent {
			l := p.lineOf(n)
			if l.used() {
				p.wrong("connection %d is lent while it is used", n.Number())
			}
			l.lent = true
		}
	case locktable.EventResume:
		p.went(locktable.Pause, r.Tag, r.Flag)
		p.table.Resume(r.At, r.Tag, r.Flag)
	case locktable.EventReopened:
		p.went(locktable.Reopen, r.Tag, false)
		p.table.Reopened(r.At, r.Tag)
	case locktable.EventPolled:
		p.went(locktable.Poll, locktable.Tag{}, false)
		p.table.Polled(r.At)
	default:
		p.wrong("%v: this is no event", r)
	}
}

// callerEvent handles Enter and Withdraw.
func (p *replayer) callerEvent(r Record) {
	if r.Kind != locktable.EventEnter {
		q := p.requests[r.request]
		if q != nil { // otherwise it was settled at the same moment
			_ = p.table.Withdraw(q, r.At)
			delete(p.requests, r.request)
		}
		return
	}
	h := p.holder(r.holder)
	h.SlotOf, h.Around = r.caller.slotOf, p.around(r.caller.around)
	q := r.caller.request
	q.Slots, q.Holder = slices.Clone(q.Slots), h
	p.numbers[weak.Make(&q)] = r.request
	if p.table.Enter(&q, r.At) == nil {
		p.requests[r.request] = &q
	}
}

// holder returns the holder with a number, and creates it if the number is new.
func (p *replayer) holder(n int) *locktable.Holder {
	h := p.holders[n]
	if h == nil {
		h = new(locktable.Holder)
		p.table.Hold(h)
		p.holders[n], p.numbers[weak.Make(h)] = h, n
	}
	return h
}

// around builds the chain of the holders that a caller has.
func (p *replayer) around(numbers []int) (first *locktable.Holder) {
	for _, n := range slices.Backward(numbers) {
		var h *locktable.Holder
		if n > 0 {
			h = p.holder(n)
		} else {
			h = new(locktable.Holder)
			p.other.Hold(h)
		}
		h.Around, first = first, h
	}
	return first
}

func (p *replayer) holderEvent(r Record) {
	h := p.holder(r.holder)
	switch r.Kind {
	case locktable.EventComplete:
		_ = p.table.Complete(h, r.At)
	case locktable.EventGiveUp:
		p.table.GiveUp(h, r.At)
	case locktable.EventRelease:
		q := new(locktable.Request)
		p.numbers[weak.Make(q)] = r.request
		if p.table.Release(h, q, r.At) == locktable.Unsettled {
			p.requests[r.request] = q
		}
	default:
		p.wrong("%v: this is no event of a holder", r)
	}
}

// quiet checks that a closed table has nothing left: no waiters, and no commands to execute.
func (p *replayer) quiet() error {
	switch {
	case p.err != nil:
	case p.table.Ended() == nil:
		p.wrong("it ends before the table was closed")
	case len(p.requests) > 0:
		p.wrong("it ends, and requests %v are not settled", slices.Sorted(maps.Keys(p.requests)))
	case len(p.conns) > 0:
		p.wrong("it ends, and connections %v are left", slices.Sorted(maps.Keys(p.conns)))
	case len(p.timers) > 0:
		p.wrong("it ends, and timers %v are left", p.timers)
	}
	return p.err
}
