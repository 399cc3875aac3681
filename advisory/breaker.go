package advisory

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

const (
	breakAfter = time.Second            // from this age on, a wait of a caller that holds locks may be in a cycle
	confirm    = 200 * time.Millisecond // until a cycle is checked a second time
	breakBound = 5 * time.Second        // for one check
)

// A breaker ends waits of this process that are the youngest of a cycle through several processes. A cycle is
// real if it is found twice with the same waits: none of them has ended in between.
type breaker struct {
	core   *core
	dialer *pgsession.Dialer
	conn   *pgx.Conn // nil = none; it exists while somebody has waited long
	found  []introspect.Cycle
}

// run looks for cycles while the Locker is open.
func (b *breaker) run() {
	defer b.disconnect()
	wait := breakAfter
	for pause.For(b.core.ctx, wait) == nil {
		wait = breakAfter
		if !b.core.waitsLong() {
			b.disconnect()
			b.found = nil
			continue
		}
		answers, err := b.ask()
		if err != nil {
			b.core.reportTo(func(log *slog.Logger) { log.Debug("looking for deadlocks failed", slog.Any("error", err)) })
			b.disconnect()
			continue
		}
		cycles := answers.Cycles()
		for _, cycle := range cycles {
			wait = confirm
			step := cycle.Youngest()
			if step.Process.ID == introspect.ProcessID() && slices.ContainsFunc(b.found, cycle.Same) {
				b.core.giveWay(cycle, step)
			}
		}
		b.found = cycles
	}
}

// ask asks all processes what they wait for.
func (b *breaker) ask() (introspect.Answers, error) {
	ctx, cancel := context.WithTimeout(b.core.ctx, breakBound)
	defer cancel()
	if b.conn == nil {
		conn, err := b.dialer.Connect(ctx)
		if err != nil {
			return introspect.Answers{}, err
		}
		b.conn = conn
	}
	return introspect.Ask(ctx, b.conn, introspect.Question{Limit: introspect.MaxLimit})
}

func (b *breaker) disconnect() {
	if b.conn != nil {
		pgsession.Disconnect(b.conn)
		b.conn = nil
	}
}

// waitsLong reports whether a caller that holds locks has waited for another lock for at least breakAfter.
func (c *core) waitsLong() bool {
	if c.stats.waiting.Load() == 0 {
		return false
	}
	long := c.present() - breakAfter
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.table.Keys {
		for q := range k.Requests {
			if r := requestOf(q); (r.nested() || r.Abroad) && r.start < long {
				return true
			}
		}
	}
	return false
}

// giveWay ends a wait if it still goes on, so that the other waits of its cycle end.
func (c *core) giveWay(cycle introspect.Cycle, step introspect.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.table.Key(step.Wait.Tag, false)
	if k == nil {
		return
	}
	for q := range k.Requests {
		if r := requestOf(q); r.id == step.Wait.ID {
			i := slices.IndexFunc(cycle, func(s introspect.Step) bool { return s.Is(step) })
			cycle = slices.Concat(cycle[i:], cycle[:i])
			r.deadlock = &deadlockError{Across: cycle.String()}
			for _, s := range cycle {
				r.deadlock.Cycle = append(r.deadlock.Cycle, c.named(r, s.Wait.Tag))
			}
			r.deadlock.Cycle[0] = r.name
			r.wakeUp()
			return
		}
	}
}

// named returns the key with this tag, by its name if the request's caller holds it, under mu.
func (c *core) named(r *request, tag namespace.Tag) namespace.Key {
	for _, key := range r.partial {
		if key.Tag() == tag {
			return key
		}
	}
	for l := range c.carried(r) {
		if key, ok := l.holds(tag); ok {
			return key
		}
	}
	return keyOf(tag)
}

// keyOf returns the raw key of a tag, without the name that its process has for it.
func keyOf(t namespace.Tag) namespace.Key {
	if k1, k2, ok := t.Pair(); ok {
		return namespace.Pair(k1, k2)
	}
	k, _ := t.Single()
	return namespace.SingleRaw(k)
}
