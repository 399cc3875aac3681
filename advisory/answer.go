package advisory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// join makes the Locker answer questions about what it holds and waits for; see package introspect.
func (c *core) join(cc *pgx.ConnConfig) {
	if c.config.BreakDeadlocks {
		dialer := pgsession.NewDialer(pgsession.Config{ConnConfig: cc, BeforeConnect: c.config.BeforeConnect, T: breakBound})
		c.wg.Go((&breaker{core: c, dialer: dialer}).run)
	}
	c.answers = introspect.Join(introspect.Member{
		Conn: cc, BeforeConnect: c.config.BeforeConnect, ApplicationName: c.config.ApplicationName,
		Config: c.config.Answer, Source: answerer{c}, Logger: c.config.Logger,
	})
}

// An answerer is a core as an introspect.Source.
type answerer struct{ *core }

var _ introspect.Source = answerer{}

// Connected implements introspect.Source.
func (c answerer) Connected() bool { return c.connected.Load() > 0 }

// Answer implements introspect.Source. While it inspects the locks of one connection, no lock of the
// Locker can change. While it inspects all keys because a request waits, no lock can change either.
func (c answerer) Answer(q introspect.Question, into *introspect.Answer) {
	now := c.present()
	held := c.heldFor(q)
	into.AllLocks += len(held)
	slices.SortFunc(held, func(a, b holding) int {
		return cmp.Or(cmp.Compare(b.waiting, a.waiting), cmp.Compare(a.lock.hold.Since(), b.lock.hold.Since()))
	})
	for page := range slices.Chunk(held[:min(len(held), q.Limit)], heldPage) {
		into.Locks = c.describeHeld(into.Locks, page, now)
	}
	c.describeWaits(into, q, now)
}

// A holding is a lock's use of a key.
type holding struct {
	lock    *Lock
	key     *locktable.Key
	waiting int
}

// heldFor returns the held locks that a question asks for.
func (c answerer) heldFor(q introspect.Question) (held []holding) {
	c.mu.Lock()
	conns := slices.Collect(c.table.Conns)
	c.mu.Unlock()
	for _, n := range conns {
		c.mu.Lock()
		for k := range n.Keys {
			for _, h := range k.Holders() {
				l := lockOf(h)
				if name, ok := l.holds(k.Tag()); ok && l.live() && (asksFor(q, name) || slices.Contains(q.Tags, h.SlotOf)) {
					held = append(held, holding{l, k, k.Waiting()})
				}
			}
		}
		c.mu.Unlock()
	}
	return held
}

// describeHeld adds descriptions of the locks that are still held.
func (c answerer) describeHeld(into []introspect.Lock, held []holding, now locktable.Instant) []introspect.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range held {
		l, k := h.lock, h.key
		if !l.live() || !slices.Contains(l.hold.On(), k) {
			continue
		}
		n := connOf(k.Conn())
		name, _ := l.holds(k.Tag())
		d := introspect.Lock{
			Key: name.String(), Tag: k.Tag(), Semaphore: semaphoreOf(name, l), Slots: k.Slots(), Shared: l.Shared(), Label: l.label,
			Age: now - l.hold.Since(), Session: n.pid, Beside: k.Conn().Locks() - 1,
			Doubtful: n.state(time.Now()) != session.Held, Asked: c.notes[l].wasAsked(), HandOvers: int64(k.HandOvers()), Waiters: k.Waiting(),
		}
		for r := range k.Requests {
			d.OldestWait = max(d.OldestWait, now-requestOf(r).start)
		}
		into = append(into, d)
	}
	return into
}

// semaphoreOf returns the text of the semaphore that a lock is a slot of, or "".
func semaphoreOf(slot namespace.Key, l *Lock) string {
	if !l.hold.SlotOf.Valid() {
		return ""
	}
	text, _, _ := strings.Cut(slot.String(), "#slot")
	return text
}

// describeWaits adds the oldest waiting requests, up to the question's limit, and counts all.
func (c answerer) describeWaits(into *introspect.Answer, q introspect.Question, now locktable.Instant) {
	if c.stats.waiting.Load() == 0 {
		return
	}
	type place struct {
		request *request
		ahead   int
	}
	var all []place
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.table.Keys {
		ahead := 0
		for w := range k.Requests {
			if r := requestOf(w); asksFor(q, r.name) {
				all = append(all, place{r, ahead})
			}
			ahead++
		}
	}
	into.AllWaits += len(all)
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.request.start, b.request.start) })
	for _, p := range all[:min(len(all), q.Limit)] {
		into.Waits = append(into.Waits, p.request.describe(p.ahead, now))
	}
}

// describe describes a waiting request, under mu.
func (r *request) describe(ahead int, now locktable.Instant) introspect.Wait {
	k := r.Key()
	w := introspect.Wait{
		ID:  r.identify(),
		Key: r.name.String(), Tag: k.Tag(), Semaphore: r.slots != nil, Shared: r.lock.Shared(), Label: r.lock.label,
		Age: now - r.start, Ahead: ahead,
	}
	if r.Deadline != 0 {
		w.Left = max(r.Deadline-now, 1)
	}
	if n := k.Conn(); k.Phase() == locktable.Waiting && ahead == 0 && n != nil && n.Waiter() == k {
		w.Session = connOf(n).pid
	}
	for _, slot := range r.slots {
		w.Slots = append(w.Slots, slot.Tag())
	}
	for _, h := range r.Outer() {
		for _, held := range h.On() {
			w.Holds = append(w.Holds, held.Tag())
		}
	}
	for _, l := range r.abroad {
		for _, held := range l.keys {
			w.Holds = append(w.Holds, held.Tag())
		}
	}
	return w
}

// asksFor reports whether a question is about a key.
func asksFor(q introspect.Question, name namespace.Key) bool {
	text := ""
	if q.Prefix != "" {
		text = name.String()
	}
	return q.Matches(name.Tag(), text)
}

// Request implements introspect.Source.
func (c answerer) Request(r introspect.Request) (replies []introspect.Reply) {
	for _, h := range c.heldFor(introspect.Question{Tags: []namespace.Tag{r.Tag}}) {
		reply := introspect.Reply{Key: h.lock.Key().String()}
		switch {
		case r.Kind == introspect.AskRelease && c.config.Answer.AllowAsk:
			reply.Done, reply.Note = true, c.ask(h.lock)
		case r.Kind == introspect.AskRelease:
			reply.Refused = "the program does not allow it: Config.Answer.AllowAsk is not set"
		case r.Kind == introspect.AskDump && c.config.Answer.AllowDump:
			reply.Done, reply.Note = true, c.dump(h.lock)
		case r.Kind == introspect.AskDump:
			reply.Refused = "the program does not allow it: Config.Answer.AllowDump is not set"
		default:
			continue
		}
		replies = append(replies, reply)
	}
	return replies
}
