package tabletrace

import (
	"weak"

	"github.com/pglatch/pglatch/internal/locktable"
)

// carrierEvent handles an action or report of a carrier on a connection. The carrier may do only what it was commanded.
func (p *replayer) carrierEvent(l *line, r Record) {
	n, t := l.node, p.table
	switch r.Kind {
	case locktable.EventConnected:
		p.demand(l.dialing, r, "nobody dials")
		l.dialing = false
		if !t.Connected(n, r.At) {
			p.goes(l)
		}
	case locktable.EventUnmade:
		p.demand(l.dialing, r, "nobody dials")
		t.Unmade(n, r.At, r.Err, r.NotBefore, r.Flag)
		p.goes(l)
	case locktable.EventClosed:
		p.demand(l.closing, r, "it was not to be closed")
		t.Closed(n, r.At)
		p.goes(l)
	case locktable.EventVerified:
		t.Verified(n, r.At)
	case locktable.EventRested:
		if t.Rested(n, r.At) == locktable.Forget {
			p.demand(len(l.has) == 0 && !l.used(), r, "it is given back with locks, or while it is used")
			p.goes(l)
		}
	case locktable.EventEnd:
		t.End(n, r.At, r.Err)
	case locktable.EventReturn:
		p.demand(l.lent, r, "nobody borrowed it")
		l.lent = false
		t.Return(n, r.At, r.Err)
	case locktable.EventPing:
		q := new(locktable.Request)
		p.numbers[weak.Make(q)] = r.request
		if t.Ping(n, q, r.At); !q.Settled() {
			p.requests[r.request] = q
		}
	default:
		p.useEvent(l, r)
	}
}

// useEvent handles a carrier's use of a session that it owns.
func (p *replayer) useEvent(l *line, r Record) {
	switch r.Kind {
	case locktable.EventTake:
		p.demand(l.driving || l.attending && l.step.Kind == locktable.DoPending, r, "it is not to be driven")
		l.driving = false
		if batch := p.table.Take(l.node, r.At); len(batch) > 0 {
			l.batch = append([]*locktable.Op(nil), batch...)
			for _, o := range l.batch {
				p.asks(l, r, o)
			}
		}
	case locktable.EventAnswer:
		p.answer(l, r)
	case locktable.EventNext:
		p.demand(l.attending && !l.stepping, r, "no goroutine waits on it, or a step is under way")
		p.begin(l, r, p.table.Next(l.node, r.At))
	case locktable.EventStepped:
		p.demand(l.stepping, r, "no step is under way")
		switch reply := r.Replies[0]; {
		case r.Err != nil || !reply.Held:
		case l.step.Kind == locktable.TryAny:
			l.has[l.step.Any[reply.Index]] = true
		default:
			l.has[l.step.Tag] = true
		}
		p.begin(l, r, p.table.Stepped(l.node, r.At, r.Replies[0], r.Err))
	default:
		p.wrong("%v: this is no event of a connection", r)
	}
}

// begin handles the next step of a waiting goroutine.
func (p *replayer) begin(l *line, r Record, s locktable.Step) {
	l.step, l.stepping = s, s.Kind == locktable.WaitFor || s.Kind == locktable.TryAny
	l.attending = s.Kind != locktable.Leave
	if l.stepping {
		p.asks(l, r, &locktable.Op{Kind: locktable.Try, Tag: s.Tag, Any: s.Any})
	}
	if l.gone {
		p.goes(l)
	}
}

// asks checks that an operation is legal on a session: PostgreSQL grants a lock again to the session that has it, and
// warns about the release of one that it does not have.
func (p *replayer) asks(l *line, r Record, o *locktable.Op) {
	switch {
	case o.Kind == locktable.Unlock:
		p.demand(l.has[o.Tag], r, "it is to give back what it has not")
	case o.Kind == locktable.Try && o.Any == nil:
		p.demand(!l.has[o.Tag], r, "it is asked for what it has")
	case o.Kind == locktable.Try:
		for _, tag := range o.Any {
			p.demand(!l.has[tag], r, "it is asked for a slot that it has")
		}
	}
}

func (p *replayer) answer(l *line, r Record) {
	batch := l.batch
	p.demand(batch != nil, r, "nothing was asked")
	p.demand(r.Err != nil || len(r.Replies) == len(batch), r, "not each operation has an answer")
	l.batch = nil
	if p.err != nil {
		return
	}
	for i, o := range batch {
		switch {
		case r.Err != nil:
		case o.Kind == locktable.Unlock:
			delete(l.has, o.Tag)
		case o.Kind == locktable.Try && r.Replies[i].Held && o.Any != nil:
			l.has[o.Any[r.Replies[i].Index]] = true
		case o.Kind == locktable.Try && r.Replies[i].Held:
			l.has[o.Tag] = true
		}
	}
	p.table.Answer(l.node, r.At, r.Replies, r.Err)
}

func (p *replayer) demand(ok bool, r Record, what string) {
	if !ok {
		p.wrong("%v: %s", r, what)
	}
}
