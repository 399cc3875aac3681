package turnstest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pglatch/pglatch/internal/txguard"
)

// An input has the arguments of a function.
type input struct {
	args []*string
	err  error
}

func (in *input) text(i int) string {
	if i >= len(in.args) || in.args[i] == nil {
		return ""
	}
	return *in.args[i]
}

func (in *input) int(i int) int64 {
	n, err := strconv.ParseInt(in.text(i), 10, 64)
	if err != nil {
		in.err = err
	}
	return n
}

func (in *input) bool(i int) bool { return strings.HasPrefix(in.text(i), "t") }

func (in *input) duration(i int) time.Duration {
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(in.text(i), " seconds"), 64)
	if err != nil {
		in.err = err
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
}

func (in *input) texts(i int) (all []string) {
	in.array(i, &all)
	return all
}

func (in *input) ints(i int) (all []int64) {
	in.array(i, &all)
	return all
}

func (in *input) array(i int, to any) {
	oid := uint32(pgtype.TextArrayOID)
	if _, ok := to.(*[]int64); ok {
		oid = pgtype.Int8ArrayOID
	}
	if err := pgtype.NewMap().Scan(oid, pgtype.TextFormatCode, []byte(in.text(i)), to); err != nil {
		in.err = err
	}
}

// bytes reads hexadecimal digits; "-" is NULL.
func (in *input) bytes(i int) []byte {
	if in.text(i) == "-" {
		return nil
	}
	data, err := hex.DecodeString(in.text(i))
	if err != nil {
		in.err = err
	}
	return append([]byte{}, data...)
}

// functions are those of the schema. The caller holds the server's mu. b is the mailbox that the first argument names, and
// can be nil.
var functions = map[string]func(x *session, b *box, in *input) (*result, error){
	"put":           (*session).put,
	"outcome":       (*session).outcome,
	"list_entities": (*session).listEntities,
	"count_all":     (*session).countAll,
	"open_mailbox":  (*session).openMailbox,
	"look":          (*session).look,
	"claim":         (*session).claim,
	"take":          (*session).take,
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

func did(yes bool) (*result, error) { return one("did", oidBool, yes), nil }

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

// turn returns the row of a running turn with a token; nil = it is stale.
func (x *session) turn(b *box, name string, token int64) (*entity, error) {
	e, err := x.row(b, name)
	if err != nil || e == nil || e.token != token || e.state != "running" {
		return nil, err
	}
	return e, nil
}

func (x *session) put(b *box, in *input) (*result, error) {
	answer := func(words ...any) (*result, error) {
		return one("put", oidText, strings.TrimSpace(fmt.Sprintln(words...))), nil
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
	return &result{columns: []column{{"state", oidText}, {"attempts", oidInt4}, {"error", oidText}, {"value", oidBytea}}, rows: [][]any{{state, attempts, lastError, value}}, tag: "SELECT 1"}, nil
}

// countAll does nothing: each put counts exactly.
func (x *session) countAll(b *box, _ *input) (*result, error) {
	return one("count_all", oidInt8, b.total()), nil
}

func (x *session) listEntities(b *box, in *input) (*result, error) {
	state, name, most, now := in.text(1), in.text(2), in.int(3), time.Now()
	r := &result{columns: []column{
		{"entity", oidText},
		{"state", oidText},
		{"attempts", oidInt4},
		{"node", oidText},
		{"since", oidTime},
		{"age_ms", oidInt8},
		{"messages", oidInt8},
		{"oldest_ms", oidInt8},
		{"last_error", oidText},
		{"interrupt", oidText},
	}}
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
		r.rows = append(r.rows, []any{e.name, e.stateAt(now), e.attempts, e.node, since, now.Sub(since).Milliseconds(), len(all), oldest, e.lastError, interrupt})
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
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

func (x *session) look(b *box, in *input) (*result, error) {
	node := in.text(1)
	type target struct {
		Node string `json:"node"`
		Key  string `json:"key"`
	}
	seen := struct {
		Due         *float64 `json:"due"`
		Dead        []string `json:"dead"`
		Next        *target  `json:"next"`
		Mine        int      `json:"mine"`
		Interrupted bool     `json:"interrupted"`
	}{Dead: []string{}}
	if ready := b.ready(); len(ready) > 0 {
		seen.Due = new(float64(time.Until(ready[0].readyAt)) / float64(time.Millisecond))
	}
	for _, other := range b.others(node) {
		if !x.server.alive(b.nodes[other]) {
			seen.Dead = append(seen.Dead, other)
		} else if seen.Next == nil && len(b.of(other)) > 0 {
			seen.Next = &target{other, strconv.FormatInt(b.nodes[other], 10)}
		}
	}
	for _, e := range b.of(node) {
		seen.Mine++
		seen.Interrupted = seen.Interrupted || e.interrupt != nil
	}
	text, err := json.Marshal(seen)
	return one("look", oidText, string(text)), err
}

func (x *session) claim(b *box, in *input) (*result, error) {
	node, most, awake, now := in.text(1), in.int(2), in.duration(3), time.Now()
	r := &result{columns: []column{{"entity", oidText}, {"token", oidInt8}, {"attempts", oidInt4}, {"after", oidInt8}, {"last_error", oidText}}}
	for _, e := range b.ready() {
		if int64(len(r.rows)) == most || e.readyAt.After(now) {
			break
		}
		if e.lockedBy != nil {
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
		r.rows = append(r.rows, []any{e.name, token, attempts, e.after, e.lastError})
	}
	if len(r.rows) > 0 && awake > 0 {
		x.later(func() { b.awakeUntil = time.Now().Add(awake) })
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
	return r, nil
}

func (x *session) take(b *box, in *input) (*result, error) {
	r := &result{columns: []column{
		{"entity", oidText}, {"number", oidInt8}, {"id", oidText}, {"trace", oidText}, {"sent_at", oidTime}, {"body", oidBytea}, {"age_ms", oidInt8}, {"newest_ms", oidInt8},
	}}
	after, most := in.ints(2), in.ints(3)
	for i, name := range in.texts(1) {
		all := b.waiting(name, after[i])
		for _, m := range all[:min(int(most[i]), len(all))] {
			newest := time.Since(all[len(all)-1].sentAt).Milliseconds()
			r.rows = append(r.rows, []any{name, m.number, m.id, m.trace, m.sentAt, m.body, time.Since(m.sentAt).Milliseconds(), newest})
		}
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
	return r, nil
}

func (x *session) finishTurn(b *box, in *input) (*result, error) {
	name, token, numbers, value := in.text(1), in.int(2), in.ints(3), in.bytes(4)
	e, err := x.turn(b, name, token)
	if err != nil || e == nil {
		return one("finish", oidBool, false), err
	}
	for _, n := range numbers {
		if !slices.ContainsFunc(b.messages[name], func(m *message) bool { return m.number == n }) {
			return did(false)
		}
	}
	x.tx.settings["pglatch.turn_done"] = strconv.FormatInt(token, 10)
	x.later(func() {
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
	return did(true)
}

func (x *session) fail(b *box, in *input) (*result, error) {
	name, numbers, text, pause, dead, stop := in.text(1), in.ints(3), in.text(4), in.duration(5), in.bool(6), in.bool(7)
	e, err := x.turn(b, name, in.int(2))
	if err != nil || e == nil {
		return one("fail", oidBool, false), err
	}
	x.later(func() {
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
	return did(true)
}

func (x *session) giveBack(b *box, in *input) (*result, error) {
	pause := in.duration(3)
	e, err := x.turn(b, in.text(1), in.int(2))
	if err != nil || e == nil {
		return one("give_back", oidBool, false), err
	}
	x.later(func() { b.rest(e, e.after, max(e.attempts-1, 0), pause, e.lastError) })
	return did(true)
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
		return one("reclaim", oidInt8, 0), nil
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
	return one("reclaim", oidInt8, len(all)), nil
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
		return one("interrupt", oidBool, false), err
	}
	x.later(func() {
		e.interrupt = new(in.text(2))
		x.server.notify(b.name, "interrupt")
	})
	return did(true)
}

func (x *session) interrupted(b *box, in *input) (*result, error) {
	r := &result{columns: []column{{"token", oidInt8}, {"reason", oidText}}}
	for _, e := range b.of(in.text(1)) {
		if e.interrupt != nil {
			r.rows = append(r.rows, []any{e.token, *e.interrupt})
		}
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
	return r, nil
}

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
		return one("skip_dead", oidBool, false), err
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
	return one("purge", oidInt8, gone+len(letters)), nil
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
	r := &result{columns: []column{
		{"entity", oidText}, {"id", oidText}, {"body", oidBytea}, {"trace", oidText}, {"number", oidInt8}, {"sent_at", oidTime}, {"attempts", oidInt4}, {"error", oidText}, {"died_at", oidTime},
	}}
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
		r.rows = append(r.rows, []any{d.entity, d.id, d.body, d.trace, d.number, d.sentAt, d.attempts, d.err, d.diedAt})
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
	return r, in.err
}

func (x *session) names() *result {
	r := &result{columns: []column{{"name", oidText}, {"namespace", oidText}}}
	for _, name := range slices.Sorted(maps.Keys(x.server.store.boxes)) {
		r.rows = append(r.rows, []any{name, x.server.store.boxes[name].namespace})
	}
	r.tag = fmt.Sprint("SELECT ", len(r.rows))
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
		columns: []column{{"ready", oidInt8}, {"running", oidInt8}, {"stopped", oidInt8}, {"dead", oidInt8}, {"nodes", oidInt8}, {"oldest", oidFloat}},
		rows:    [][]any{{counts["ready"], counts["running"], counts["stopped"], dead, nodes, oldest}}, tag: "SELECT 1",
	}, nil
}

// guard is the first or the second guard of a commit.
func (x *session) guard(sql string, args []*string) (*result, error) {
	in := &input{args: args}
	mark := in.text(0)
	if strings.Contains(sql, "coalesce(pg_catalog.current_setting('pglatch.guarded'") {
		if x.tx.settings["pglatch.guarded"] != mark {
			return nil, refused("pglatch: the guarded transaction was ended")
		}
	} else {
		x.tx.settings["pglatch.guarded"] = mark
	}
	b, token := x.server.store.boxes[in.text(1)], in.text(3)
	if x.tx.settings["pglatch.turn_done"] != token {
		var e *entity
		if b != nil {
			e = b.entities[in.text(2)]
		}
		if e == nil || e.state != "running" || strconv.FormatInt(e.token, 10) != token {
			return nil, refused(txguard.Refusal + "stale")
		}
	}
	return one("", oidInt4, 0), nil
}

// outcomeOf tells which transaction this is, and what the statement before stored.
func (x *session) outcomeOf() (*result, error) {
	return one("concat", oidText, fmt.Sprintf("%d %d %s", x.pid, x.tx.began.UnixMicro(), x.tx.settings["pglatch.outcome"])), nil
}
