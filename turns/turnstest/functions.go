package turnstest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// functions are those of the schema. The caller holds the server's mu. b is the mailbox that the first argument names, and
// can be nil.
var functions = map[string]func(x *session, b *box, in *input) (*result, error){
	"put":           (*session).put,
	"outcome":       (*session).outcome,
	"list_entities": (*session).listEntities,
	"count_all":     (*session).countAll,
	"open_mailbox":  (*session).openMailbox,
	"look":          (*session).look,
	"earliest":      (*session).earliest,
	"claim":         (*session).claim,
	"take":          (*session).take,
	"is_current":    (*session).isCurrent,
	"finish":        (*session).finishTurn,
	"fail":          (*session).fail,
	"give_back":     (*session).giveBack,
	"join_node":     (*session).joinNode,
	"reclaim":       (*session).reclaim,
	"orphans":       (*session).orphans,
	"interrupt":     (*session).interrupt,
	"interrupted":   (*session).interrupted,
	"retry_dead":    (*session).retryDead,
	"skip_dead":     (*session).skipDead,
	"purge":         (*session).purge,
	"sweep":         (*session).sweep,
}

func (x *session) call(name string, args []*string) (*result, error) {
	f := functions[name]
	if f == nil {
		return nil, missing(name)
	}
	in := &input{args: args}
	b := x.server.store.boxes[in.text(0)]
	if b == nil && !slices.Contains([]string{"put", "outcome", "open_mailbox"}, name) {
		return nil, fmt.Errorf("turnstest: %s: there is no mailbox %s", name, in.text(0))
	}
	r, err := f(x, b, in)
	if in.err != nil {
		return nil, fmt.Errorf("turnstest: %s: %w", name, in.err)
	}
	return r, err
}

// later does something when the transaction commits.
func (x *session) later(change func()) { x.tx.changes = append(x.tx.changes, change) }

func did(yes bool) (*result, error) { return one("did bool", yes), nil }

// row waits for the lock of an entity's row, and returns the row; nil = there is none.
func (x *session) row(b *box, name string) (*entity, error) {
	for {
		e := b.entities[name]
		if e == nil {
			return nil, nil
		}
		if _, err := x.lock(&e.lockedBy, 0); err != nil {
			return nil, err
		}
		if !e.forgotten {
			return e, nil
		}
	}
}

// ends changes the row of a running turn with a token. It answers whether the turn was the current one.
func (x *session) ends(b *box, name string, token int64, change func(e *entity)) (*result, error) {
	e, err := x.row(b, name)
	if err != nil || e == nil || e.token != token || e.state != "running" {
		return one("did bool", false), err
	}
	x.later(func() { change(e) })
	return did(true)
}

func (x *session) put(b *box, in *input) (*result, error) {
	answer := func(words ...any) (*result, error) {
		return one("put text", strings.TrimSpace(fmt.Sprintln(words...))), nil
	}
	name, id, body, trace := in.text(1), in.text(2), in.bytes(3), in.text(4)
	switch {
	case b == nil:
		return answer("unknown")
	case name == "" || len(name) > 1000 || len(id) > 1000 || len(trace) > 1000:
		return answer("invalid")
	case int64(len(body)) > b.maxBytes:
		return answer("bytes", b.maxBytes)
	}
	locked, err := x.lock(b.lockOf(name), time.Duration(in.int(5))*time.Millisecond)
	if err != nil {
		return nil, err
	}
	if !locked {
		return answer("timeout")
	}
	var own []*message
	for _, p := range x.tx.sentTo(b) {
		if p.entity == name {
			own = append(own, p.message)
		}
	}
	if id != "" {
		if s := b.sent[sentID{name, id}]; s != nil {
			return answer("again", s.number)
		}
		if i := slices.IndexFunc(own, func(m *message) bool { return m.id == id }); i >= 0 {
			return answer("again", own[i].number)
		}
	}
	e := b.entities[name]
	if b.refuse && (e != nil || len(own) > 0) {
		return answer("occupied")
	}
	var all []*message
	if e != nil {
		all = slices.Clone(b.waiting(name, e.after))
	}
	all = append(all, own...)
	position := int64(1)
	if len(all) > 0 {
		position = all[len(all)-1].position + 1
		if position-all[0].position >= b.maxDepth {
			return answer("depth", b.maxDepth)
		}
	}
	if b.maxTotal > 0 && b.total()+int64(len(x.tx.sentTo(b))) >= b.maxTotal {
		return answer("total", b.maxTotal)
	}
	x.server.store.number++
	m := &message{x.server.store.number, position, id, trace, time.Now(), body}
	x.tx.sent = append(x.tx.sent, &pending{m, b, name})
	x.later(func() {
		b.put(name, m, m.sentAt.Add(b.quiet))
		if id != "" {
			b.sent[sentID{name, id}] = &sent{number: m.number, sentAt: m.sentAt}
		}
		if b.awakeUntil.Before(m.sentAt) {
			x.server.notify(b.name, "")
		}
	})
	return answer("sent", m.number)
}

func (x *session) outcome(b *box, in *input) (*result, error) {
	state, attempts, lastError, value := "unknown", int64(0), "", any(nil)
	name, number, id := in.text(1), in.int(2), in.text(3)
	if b != nil {
		d, s, e := b.dead[number], b.sent[sentID{name, id}], b.entities[name]
		switch {
		case s != nil && s.number == number && s.done:
			state = "done"
			if s.value != nil {
				value = s.value
			}
		case d != nil:
			state, attempts, lastError = "dead", d.attempts, d.err
		case slices.ContainsFunc(b.messages[name], func(m *message) bool { return m.number == number }):
			state = "waiting"
			if first := b.waiting(name, e.after); len(first) > 0 && first[0].number == number {
				attempts, lastError = e.attempts, e.lastError
				if e.state == "running" {
					state = "running"
				}
			}
		}
	}
	return &result{columns: "state text, attempts int4, error text, value bytea", rows: [][]any{{state, attempts, lastError, value}}}, nil
}

// countAll does nothing: each put counts exactly.
func (x *session) countAll(b *box, _ *input) (*result, error) {
	return one("count_all int8", b.total()), nil
}

func (x *session) listEntities(b *box, in *input) (*result, error) {
	state, name, most, now := in.text(1), in.text(2), in.int(3), time.Now()
	r := &result{columns: "entity text, state text, attempts int4, node text, since timestamptz, age_ms int8, messages int8, oldest_ms int8, last_error text, interrupt text"}
	for _, e := range b.where(func(e *entity) bool { return name == e.name || name == "" && e.stateAt(now) == state }) {
		if int64(len(r.rows)) == most {
			break
		}
		all, interrupt, oldest := b.waiting(e.name, e.after), "", int64(0)
		if len(all) > 0 {
			oldest = now.Sub(all[0].sentAt).Milliseconds()
		}
		if e.interrupt != nil {
			interrupt = *e.interrupt
		}
		since := e.readyAt
		if e.state == "running" {
			since = e.claimedAt
		}
		r.add(e.name, e.stateAt(now), e.attempts, e.node, since, now.Sub(since).Milliseconds(), len(all), oldest, e.lastError, interrupt)
	}
	return r, nil
}

func (x *session) openMailbox(b *box, in *input) (*result, error) {
	if b == nil {
		b = &box{
			name: in.text(0), namespace: in.text(1), entities: map[string]*entity{}, messages: map[string][]*message{}, sent: map[sentID]*sent{},
			dead: map[int64]*letter{}, nodes: map[string]int64{}, senders: map[string]**tx{},
		}
	}
	if b.namespace != in.text(1) {
		return did(false)
	}
	maxBytes, maxDepth, quiet, refuse, keep := in.int(2), in.int(3), in.duration(4), in.bool(5), in.duration(6)
	maxTotal := in.int(7)
	x.later(func() {
		x.server.store.boxes[b.name] = b
		b.maxBytes, b.maxDepth, b.maxTotal, b.quiet, b.refuse, b.keep = maxBytes, maxDepth, maxTotal, quiet, refuse, keep
	})
	return did(true)
}
