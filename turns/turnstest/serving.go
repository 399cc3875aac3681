package turnstest

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

func (x *session) look(b *box, in *input) (*result, error) {
	node, since, tokens := in.text(1), time.UnixMicro(in.int(2)), in.ints(3)
	type target struct {
		Node string `json:"node"`
		Key  string `json:"key"`
	}
	seen := struct {
		Now         int64    `json:"now"`
		Due         *float64 `json:"due"`
		Dead        []string `json:"dead"`
		Next        *target  `json:"next"`
		Mine        int      `json:"mine"`
		Interrupted bool     `json:"interrupted"`
	}{Now: time.Now().UnixMicro(), Dead: []string{}}
	for _, e := range b.ready() {
		if !e.readyAt.Before(since) {
			seen.Due = new(float64(time.Until(e.readyAt)) / float64(time.Millisecond))
			break
		}
	}
	for _, other := range b.others(node) {
		if !x.server.alive(b.nodes[other]) {
			seen.Dead = append(seen.Dead, other)
		} else if seen.Next == nil && len(b.of(other)) > 0 {
			seen.Next = &target{other, strconv.FormatInt(b.nodes[other], 10)}
		}
	}
	for _, e := range b.of(node) {
		if in.bool(4) {
			seen.Mine++
		}
		seen.Interrupted = seen.Interrupted || e.interrupt != nil && slices.Contains(tokens, e.token)
	}
	text, err := json.Marshal(seen)
	return one("look text", string(text)), err
}

// earliest is when the entity became or becomes ready that is first.
func (*session) earliest(b *box, _ *input) (*result, error) {
	if ready := b.ready(); len(ready) > 0 {
		return one("earliest int8", ready[0].readyAt.UnixMicro()), nil
	}
	return one("earliest int8", nil), nil
}

func (x *session) claim(b *box, in *input) (*result, error) {
	node, most, awake, now := in.text(1), in.int(2), in.duration(3), time.Now()
	earliest := time.UnixMicro(in.int(4))
	r := &result{columns: "entity text, token int8, attempts int4, after int8, last_error text, ready int8"}
	for _, e := range b.ready() {
		if int64(len(r.rows)) == most || e.readyAt.After(now) {
			break
		}
		if e.lockedBy != nil || e.readyAt.Before(earliest) {
			continue
		}
		if _, err := x.lock(&e.lockedBy, 0); err != nil {
			return nil, err
		}
		x.server.store.token++
		token, attempts := x.server.store.token<<20, e.attempts+1
		x.later(func() {
			e.state, e.token, e.attempts, e.node, e.interrupt, e.claimedAt = "running", token, attempts, node, nil, now
		})
		r.add(e.name, token, attempts, e.after, e.lastError, e.readyAt.UnixMicro())
	}
	if len(r.rows) > 0 && awake > 0 {
		x.later(func() { b.awakeUntil = time.Now().Add(awake) })
	}
	return r, nil
}

func (x *session) take(b *box, in *input) (*result, error) {
	r := &result{columns: "entity text, number int8, id text, trace text, sent_at timestamptz, body bytea, age_ms int8, newest_ms int8"}
	after, most := in.ints(2), in.ints(3)
	for i, name := range in.texts(1) {
		all := b.waiting(name, after[i])
		for _, m := range all[:min(int(most[i]), len(all))] {
			newest := time.Since(all[len(all)-1].sentAt).Milliseconds()
			r.add(name, m.number, m.id, m.trace, m.sentAt, m.body, time.Since(m.sentAt).Milliseconds(), newest)
		}
	}
	return r, nil
}

func (x *session) isCurrent(b *box, in *input) (*result, error) {
	e := b.entities[in.text(2)]
	return did(e != nil && e.state == "running" && e.node == in.text(1) && e.token == in.int(3))
}

func (x *session) finishTurn(b *box, in *input) (*result, error) {
	name, token, numbers, value := in.text(2), in.int(3), in.ints(4), in.bytes(5)
	if _, err := x.row(b, name); err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if !slices.ContainsFunc(b.messages[name], func(m *message) bool { return m.number == n }) {
			return did(false)
		}
	}
	return x.ends(b, name, token, func(e *entity) {
		for _, m := range b.take(name, numbers) {
			if s := b.sent[sentID{name, m.id}]; s != nil && m.id != "" {
				s.done, s.value = true, value
			}
		}
		after := slices.Max(numbers)
		if left := b.waiting(name, e.after); len(left) > 0 && left[0].number < after {
			after = left[0].number - 1 // a dead letter that came back meanwhile
		}
		b.rest(e, after, 0, 0, "")
	})
}

func (x *session) fail(b *box, in *input) (*result, error) {
	name, numbers, text, pause, dead, stop := in.text(1), in.ints(3), in.text(4), in.duration(5), in.bool(6), in.bool(7)
	return x.ends(b, name, in.int(2), func(e *entity) {
		if !dead {
			b.rest(e, e.after, e.attempts, pause, text)
			return
		}
		for _, m := range b.take(name, numbers) {
			b.dead[m.number] = &letter{m, name, e.attempts, text, time.Now()}
		}
		if stop {
			e.state, e.attempts, e.node, e.interrupt, e.lastError = "stopped", 0, "", nil, text
			return
		}
		b.rest(e, e.after, 0, 0, "")
	})
}

func (x *session) giveBack(b *box, in *input) (*result, error) {
	pause := in.duration(3)
	return x.ends(b, in.text(1), in.int(2), func(e *entity) { b.rest(e, e.after, max(e.attempts-1, 0), pause, e.lastError) })
}

func (x *session) joinNode(b *box, in *input) (*result, error) {
	node, key := in.text(1), in.int(2)
	x.later(func() { b.nodes[node] = key })
	return did(true)
}

func (x *session) reclaim(b *box, in *input) (*result, error) {
	node := in.text(1)
	key, ok := b.nodes[node]
	if !ok || x.server.alive(key) {
		return one("reclaim int8", 0), nil
	}
	all := slices.DeleteFunc(b.of(node), func(e *entity) bool { return e.lockedBy != nil })
	for _, e := range all {
		if _, err := x.lock(&e.lockedBy, 0); err != nil {
			return nil, err
		}
	}
	x.later(func() {
		for _, e := range all {
			e.state, e.readyAt, e.node, e.interrupt, e.lastError = "ready", time.Now(), "", nil, "the process that ran the turn ended"
		}
		if len(b.of(node)) == 0 {
			delete(b.nodes, node)
		}
	})
	return one("reclaim int8", len(all)), nil
}

func (x *session) orphans(b *box, in *input) (*result, error) {
	tokens := in.ints(2)
	for _, e := range b.of(in.text(1)) {
		if slices.Contains(tokens, e.token) || e.lockedBy != nil {
			continue
		}
		x.later(func() {
			e.state, e.readyAt, e.node, e.attempts, e.interrupt = "ready", time.Now(), "", max(e.attempts-1, 0), nil
		})
	}
	return did(true)
}

func (x *session) interrupt(b *box, in *input) (*result, error) {
	e, err := x.row(b, in.text(1))
	if err != nil || e == nil || e.state != "running" {
		return one("interrupt bool", false), err
	}
	x.later(func() {
		e.interrupt = new(in.text(2))
		x.server.notify(b.name, "interrupt")
	})
	return did(true)
}

func (x *session) interrupted(b *box, in *input) (*result, error) {
	r := &result{columns: "token int8, reason text"}
	for _, e := range b.of(in.text(1)) {
		if e.interrupt != nil && slices.Contains(in.ints(2), e.token) {
			r.add(e.token, *e.interrupt)
		}
	}
	return r, nil
}
