package multiplex

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/session"
)

// A batch is the ops of one round trip.
type batch struct{ ops []*op }

var batches = sync.Pool{New: func() any { return new(batch) }}

// lead drives the carrier for those that wait, and reports whether o is done.
// false: it was not in the batch, or another goroutine goes on.
func (c *carrier) lead(o *op) bool {
	c.gather()
	c.mu.Lock()
	if o != nil {
		o.leading = false
	}
	n := min(len(c.pending), maxBatch)
	mine := o == nil || o.done || slices.Contains(c.pending[:n], o)
	if c.closed != nil { // stop came first, and left the end to who leads
		err := c.closed
		c.mu.Unlock()
		c.complete(o, err)
		return mine
	}
	c.batch.ops = append(c.batch.ops, c.pending[:n]...)
	rest := copy(c.pending, c.pending[n:])
	clear(c.pending[rest:])
	c.pending = c.pending[:rest]
	c.mu.Unlock()
	return c.drive(o) && mine
}

// gather lets those who were just served come back with their next operations,
// while they do: a larger batch serves more for the price of one round trip.
func (c *carrier) gather() {
	most := 0
	for yields := 0; yields < quiet; yields++ {
		c.mu.Lock()
		n, all := len(c.pending), c.crowd
		c.mu.Unlock()
		if n >= all || n >= enough {
			return
		}
		if n > most {
			most, yields = n, 0
		}
		runtime.Gosched()
	}
}

// quiet is how often who gathers lets others run before nobody is expected any
// more: a few microseconds, if there is nothing else to do. It is no time, because
// time stands still in a testing/synctest bubble.
const quiet = 30

// enough is when the price of the round trip is a small share of all.
const enough = 64

// drive runs the batch. self is the op of the goroutine that drives, which needs
// no signal; nil = none.
func (c *carrier) drive(self *op) (done bool) {
	c.args = c.args[:0]
	for _, o := range c.batch.ops {
		c.args = append(c.args, &o.Op)
	}
	s := c.line.source
	s.batches.Add(1)
	s.ops.Add(int64(len(c.args)))
	err := c.session.Batch(c.args, patience)
	if errors.Is(err, session.ErrPending) {
		c.goOn(self)
		return false
	}
	c.complete(self, err)
	return true
}

// goOn leaves the answer to another goroutine, and tells all who wait.
func (c *carrier) goOn(self *op) {
	c.mu.Lock()
	c.slow.Store(true)
	poke := func(o *op) {
		if o != self && !o.poked && !o.leading && o.wake != nil {
			o.poked = true
			o.wake <- isSlow
		}
	}
	for _, o := range c.batch.ops {
		poke(o)
	}
	for _, o := range c.pending {
		poke(o)
	}
	c.mu.Unlock()
	c.line.source.wg.Go(func() { c.complete(nil, c.session.Resume()) })
}
