package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease"
)

// A group lets operations that arrive while statements are in flight go out together
// in the next one: they share its round trip and its commit. One that has to wait for a
// row leaves the others and is tried again alone.
type group struct {
	operate func(ctx context.Context, all []operation) ([]answer, error)

	mu       sync.Mutex
	waiting  []*call
	inFlight int
	closed   bool
	wg       sync.WaitGroup // guarded by mu, but for Wait
}

// Of a group: the statements at once, and the calls in one.
const (
	maxInFlight = 4
	maxBatch    = 256
)

// A call is what a caller waits for: operations on one name, in one transaction.
type call struct {
	ctx     context.Context
	all     []operation
	answers []answer
	err     error
	done    chan struct{} // closed when answers and err can be read
}

func newGroup(operate func(context.Context, []operation) ([]answer, error)) *group {
	return &group{operate: operate}
}

// do returns an answer for each operation. If ctx ends before they are sent, the error
// is that nothing was done; after that the outcome is unknown.
func (g *group) do(ctx context.Context, all ...operation) ([]answer, error) {
	c := &call{ctx: ctx, all: all, done: make(chan struct{})}
	if err := g.add(c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.answers, c.err
	case <-ctx.Done():
		if g.drop(c) {
			return nil, unreachable(ctx.Err())
		}
		return nil, fmt.Errorf("lease: %w", context.Cause(ctx))
	}
}

func (g *group) add(c *call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("lease: %w", lease.ErrClosed)
	}
	g.waiting = append(g.waiting, c)
	if g.inFlight < maxInFlight {
		g.inFlight++
		g.wg.Go(g.serve)
	}
	return nil
}

// drop takes back a call that was not taken yet.
func (g *group) drop(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, c)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// close blocks until all calls are answered.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// serve sends what waits, until nothing does.
func (g *group) serve() {
	for batch := g.take(); len(batch) > 0; batch = g.take() {
		if len(batch) == 1 {
			g.alone(batch[0])
			continue
		}
		g.together(batch)
	}
}

func (g *group) take() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxBatch)
	if n == 0 {
		g.inFlight--
		return nil
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return batch
}

// together sends calls in one transaction, in the order of their names.
func (g *group) together(batch []*call) {
	slices.SortStableFunc(batch, func(a, b *call) int { return cmp.Compare(a.all[0].name, b.all[0].name) })
	var all []operation
	for _, c := range batch {
		all = append(all, c.all...)
	}
	ctx, cancel := whileAnyLasts(batch)
	answers, err := g.operate(ctx, all)
	cancel()
	for _, c := range batch {
		switch {
		case errors.Is(err, lease.ErrBusy) && c.ctx.Err() == nil:
			g.again(c)
		case err != nil:
			c.err = err
			close(c.done)
		default:
			c.answers, answers = answers[:len(c.all):len(c.all)], answers[len(c.all):]
			if slices.ContainsFunc(c.answers, isWaiting) {
				g.again(c)
			} else {
				close(c.done)
			}
		}
	}
}

func isWaiting(a answer) bool { return a.outcome == busy }

// again does what has to wait, while the others go on.
func (g *group) again(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wg.Go(func() { g.alone(c) })
}

// alone sends what is not answered of a call.
func (g *group) alone(c *call) {
	defer close(c.done)
	if c.answers == nil {
		if c.answers, c.err = g.operate(c.ctx, c.all); len(c.all) == 1 || c.err != nil {
			return
		}
	}
	for i, a := range c.answers {
		if !isWaiting(a) {
			continue
		}
		if one, err := g.operate(c.ctx, c.all[i:i+1]); err != nil {
			c.answers[i].err = err // what the others did stays
		} else {
			c.answers[i] = one[0]
		}
	}
}

// whileAnyLasts is a context that ends when those of all calls have.
func whileAnyLasts(batch []*call) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(batch)))
	stops := make([]func() bool, 0, len(batch))
	for _, c := range batch {
		stops = append(stops, context.AfterFunc(c.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
