package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
)

// A group batches operations that arrive while statements are in flight. They go out together in
// the next statement, and share its round trip and its commit. A call that has to wait for a row
// leaves the batch and gives up its statement slot; it is tried again alone.
type group struct {
	line
	ctx    context.Context // ends with close: then no call waits for a connection any more
	cancel context.CancelFunc

	mu       sync.Mutex
	waiting  []*call
	inFlight int
	closed   bool
	wg       sync.WaitGroup // guarded by mu, except Wait
}

// A line makes connections to the server.
type line interface {
	connect(ctx context.Context) (connection, error)
}

// A connection does operations in one transaction, and returns their answers in order. Each
// operation waits for a row as long as wait says.
type connection interface {
	operate(ctx context.Context, all []operation, wait string) ([]answer, error)
	Release()
}

// Limits of a group: concurrent statements, and calls in one statement.
const (
	maxInFlight = 4
	maxBatch    = 256
)

// A call is a caller's operations on one name. The second of two operations does not wait, because
// the answer to the first would be delayed.
type call struct {
	ctx     context.Context
	wait    string // for a row
	all     []operation
	answers []answer
	err     error
	done    chan struct{} // closed when answers and err can be read
}

func newGroup(l line) *group {
	g := &group{line: l}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// do returns an answer for each operation. If ctx ends before they are sent, the error says that
// nothing was done; after that, the outcome is unknown.
func (g *group) do(ctx context.Context, wait string, all ...operation) ([]answer, error) {
	c := &call{ctx: ctx, wait: wait, all: all, done: make(chan struct{})}
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
		return nil, fmt.Errorf("lease/postgres: %w", context.Cause(ctx))
	}
}

var errClosed = fmt.Errorf("lease/postgres: %w", lease.ErrClosed)

func (g *group) add(c *call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosed
	}
	g.waiting = append(g.waiting, c)
	if g.inFlight < maxInFlight {
		g.inFlight++
		g.wg.Go(g.serve)
	}
	return nil
}

// drop removes a call that serve has not taken yet.
func (g *group) drop(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, c)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// close refuses calls that are not sent yet, and blocks until all others are answered.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.wg.Wait()
}

// serve sends waiting calls until there are none. It takes calls only when it has a connection, so
// a call whose caller leaves before is not sent.
func (g *group) serve() {
	for g.someWait() {
		conn, err := g.connect(g.ctx)
		batch := g.take()
		switch {
		case err == nil:
			g.send(conn, batch)
			conn.Release()
		case g.ctx.Err() != nil:
			refuse(batch, errClosed)
		default:
			refuse(batch, err)
		}
	}
}

func refuse(batch []*call, err error) {
	for _, c := range batch {
		c.err = err
		close(c.done)
	}
}

// someWait reports whether calls are waiting, so that serve has to go on.
func (g *group) someWait() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.inFlight--
		return false
	}
	return true
}

func (g *group) take() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxBatch)
	batch := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil // releases the memory of the calls that were taken
	}
	return batch
}

// send does the calls in one transaction, in the order of their names.
func (g *group) send(conn connection, batch []*call) {
	if len(batch) == 0 {
		return
	}
	slices.SortStableFunc(batch, func(a, b *call) int { return cmp.Compare(a.all[0].name, b.all[0].name) })
	var all []operation
	for _, c := range batch {
		all = append(all, c.all...)
	}
	callers := make([]context.Context, 0, len(batch))
	for _, c := range batch {
		callers = append(callers, c.ctx)
	}
	ctx, cancel := background.WhileAny(context.WithoutCancel(batch[0].ctx), callers)
	answers, err := conn.operate(ctx, all, batchWait)
	cancel()
	for _, c := range batch {
		switch {
		case c.ctx.Err() == nil && (isImpatient(err) || len(batch) > 1 && isUndone(err)):
			g.again(c)
		case err != nil:
			c.err = err
			close(c.done)
		default:
			c.answers, answers = answers[:len(c.all):len(c.all)], answers[len(c.all):]
			if c.answers[0].outcome == busy {
				g.again(c)
			} else {
				close(c.done)
			}
		}
	}
}

// again does a call that has to wait, while the others go on.
func (g *group) again(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wg.Go(func() { g.alone(c) })
}

// alone does a call from the start, one operation after the other.
func (g *group) alone(c *call) {
	defer close(c.done)
	conn, err := g.connect(c.ctx)
	if err != nil {
		c.err = err
		return
	}
	defer conn.Release()
	c.answers = make([]answer, len(c.all))
	wait := c.wait
	for i := range c.all {
		if one, err := conn.operate(c.ctx, c.all[i:i+1], wait); err != nil {
			c.answers[i].err = err // the other operations' effects stay
		} else {
			c.answers[i] = one[0]
		}
		wait = batchWait
	}
}
