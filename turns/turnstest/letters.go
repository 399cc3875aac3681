package turnstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/txguard"
)

func (x *session) retryDead(b *box, in *input) (*result, error) {
	number := in.int(1)
	d := b.dead[number]
	if d == nil {
		return did(false)
	}
	if _, err := x.lock(b.lockOf(d.entity), 0); err != nil {
		return nil, err
	}
	if b.dead[number] != d {
		return did(false)
	}
	if _, err := x.row(b, d.entity); err != nil {
		return nil, err
	}
	x.later(func() {
		delete(b.dead, number)
		e := b.put(d.entity, d.message, time.Now())
		e.after = min(e.after, number-1)
		if e.state == "stopped" {
			e.state, e.readyAt = "ready", time.Now()
		}
		x.server.notify(b.name, "")
	})
	return did(true)
}

func (x *session) skipDead(b *box, in *input) (*result, error) {
	number := in.int(1)
	d := b.dead[number]
	if d == nil {
		return did(false)
	}
	e, err := x.row(b, d.entity)
	if err != nil || b.dead[number] != d {
		return one("skip_dead bool", false), err
	}
	x.later(func() {
		delete(b.dead, number)
		if e != nil && e.state == "stopped" {
			b.rest(e, e.after, 0, 0, "")
			x.server.notify(b.name, "")
		}
	})
	return did(true)
}

func (x *session) purge(b *box, in *input) (*result, error) {
	name := in.text(1)
	if _, err := x.lock(b.lockOf(name), 0); err != nil {
		return nil, err
	}
	e, err := x.row(b, name)
	if err != nil {
		return nil, err
	}
	gone := len(b.messages[name])
	var letters []int64
	for number, d := range b.dead {
		if d.entity == name {
			letters = append(letters, number)
		}
	}
	x.later(func() {
		if e != nil {
			e.forgotten = true
			delete(b.entities, name)
		}
		delete(b.messages, name)
		for _, number := range letters {
			delete(b.dead, number)
		}
	})
	return one("purge int8", gone+len(letters)), nil
}

func (x *session) sweep(b *box, in *input) (*result, error) {
	keepDead := in.duration(1)
	x.later(func() {
		for id, s := range b.sent {
			there := slices.ContainsFunc(b.messages[id.entity], func(m *message) bool { return m.number == s.number })
			if time.Since(s.sentAt) > b.keep && !there {
				delete(b.sent, id)
			}
		}
		for number, d := range b.dead {
			if time.Since(d.diedAt) > keepDead {
				delete(b.dead, number)
			}
		}
	})
	return did(true)
}

func (x *session) deadLetters(args []*string) (*result, error) {
	in := &input{args: args}
	b, name, after, limit := x.server.store.boxes[in.text(0)], in.text(1), in.int(2), in.int(3)
	r := &result{columns: "entity text, id text, body bytea, trace text, number int8, sent_at timestamptz, attempts int4, error text, died_at timestamptz"}
	var all []*letter
	if b != nil {
		for _, d := range b.dead {
			if d.number > after && (name == "" || d.entity == name) {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b *letter) int { return int(a.number - b.number) })
	for _, d := range all[:min(int(limit), len(all))] {
		r.add(d.entity, d.id, d.body, d.trace, d.number, d.sentAt, d.attempts, d.err, d.diedAt)
	}
	return r, in.err
}

func (x *session) names() *result {
	r := &result{columns: "name text, namespace text"}
	for _, name := range slices.Sorted(maps.Keys(x.server.store.boxes)) {
		r.add(name, x.server.store.boxes[name].namespace)
	}
	return r
}

func (x *session) stats(args []*string) (*result, error) {
	in := &input{args: args}
	counts, oldest := map[string]int{}, 0.0
	b := x.server.store.boxes[in.text(0)]
	dead, nodes := 0, 0
	if b != nil {
		for _, e := range b.entities {
			counts[e.state]++
		}
		dead, nodes = len(b.dead), len(b.nodes)
		if ready := b.ready(); len(ready) > 0 {
			oldest = time.Since(ready[0].readyAt).Seconds()
		}
	}
	return &result{
		columns: "ready int8, running int8, stopped int8, dead int8, nodes int8, oldest float8",
		rows:    [][]any{{counts["ready"], counts["running"], counts["stopped"], dead, nodes, oldest}},
	}, nil
}

// guard is the first or the second guard of a commit: is_current or finish decides.
func (x *session) guard(sql string, args []*string) (*result, error) {
	mark := *args[0]
	if !strings.Contains(sql, "coalesce(pg_catalog.current_setting('pglatch.guarded'") {
		x.tx.settings["pglatch.guarded"] = mark
	} else if x.tx.settings["pglatch.guarded"] != mark {
		return nil, refused("pglatch: the guarded transaction was ended")
	}
	r, err := x.call(function.FindStringSubmatch(sql)[1], args[1:])
	if err != nil {
		return nil, err
	}
	if r.rows[0][0] != true {
		return nil, refused(txguard.Refusal + "stale")
	}
	return one("value int4", 0), nil
}

// outcomeOf tells which transaction this is, and what the statement before stored.
func (x *session) outcomeOf() (*result, error) {
	return one("concat text", fmt.Sprintf("%d %d %s", x.pid, x.tx.began.UnixMicro(), x.tx.settings["pglatch.outcome"])), nil
}
