package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/gather"
)

// A group batches operations that arrive while statements are in flight. They go out together in
// the next statement, and share its round trip and its commit. A call that has to wait for a row
// leaves the batch and gives up its statement slot; it is tried again alone.
type group struct {
	line
	calls  gather.Group[*call]
	ctx    context.Context // ends with close: then no call waits for a connection any more
	cancel context.CancelFunc
}

// A line makes connections to the server.
type line interface {
	connect(ctx context.Context) (connection, error)
}

// A connection carries out operations in one transaction, and returns their answers in
// order. Each operation waits for a row as long as wait says.
type connection interface {
	operate(ctx context.Context, all []operation, wait string) ([]answer, error)
	Release()
}

// Limits of a group: concurrent statements, and calls in one statement. With four statements, each
// would have fewer calls, and a call would cost a fifth more CPU time in PostgreSQL.
const (
	maxInFlight = 2
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
	g.calls = gather.Group[*call]{Flights: maxInFlight, Most: maxBatch, Fly: g.fly}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// do returns an answer for each operation. If ctx ends before they are sent, the error says that
// nothing was done; after that, the outcome is unknown.
func (g *group) do(ctx context.Context, wait string, all ...operation) ([]answer, error) {
	c := &call{ctx: ctx, wait: wait, all: all, done: make(chan struct{})}
	if !g.calls.Add(c) {
		return nil, errClosed
	}
	select {
	case <-c.done:
		return c.answers, c.err
	case <-ctx.Done():
		if g.calls.Drop(c) {
			return nil, unreachable(ctx.Err())
		}
		return nil, fmt.Errorf("lease/postgres: %w", context.Cause(ctx))
	}
}

var errClosed = fmt.Errorf("lease/postgres: %w", lease.ErrClosed)

// close rejects calls that are not sent yet, and blocks until all others are answered.
func (g *group) close() {
	g.cancel()
	g.calls.Close()
}

// fly sends waiting calls. It takes calls only when it has a connection, so a call whose caller
// leaves before is not sent.
func (g *group) fly(take func() []*call) {
	conn, err := g.connect(g.ctx)
	batch := take()
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

func refuse(batch []*call, err error) {
	for _, c := range batch {
		c.err = err
		close(c.done)
	}
}

// send carries out the calls in one transaction, in the order of their names.
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

// again repeats a call that has to wait, while the others continue.
func (g *group) again(c *call) {
	g.calls.Go(func() { g.alone(c) })
}

// alone carries out a call from the start, one operation after the other.
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
