package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// How many clients there are, and of which kind.
const (
	sharing = 24 // on sharedLocks
	alone   = 12 // each with a lock of its own
	staying = 4  // the same, but each stays inside for longer than an unrenewed lease lasts
	all     = sharing + alone + staying

	sharedLocks = 4

	ttl       = 10 * time.Second
	stay      = ttl + ttl/2
	brokenTTL = 2 * time.Second
)

// A client enters and leaves a lock and reports both to the witness.
type client struct {
	*leasehttp.Client
	number int
	lock   string
	broken bool // it stays inside after its lease has ended

	witness *witness
	lost    atomic.Int64 // leases that ended while it was inside: it left then
}

func newClient(number int, servers []string, w *witness, broken bool) (c *client, err error) {
	c = &client{number: number, lock: fmt.Sprintf("own/%d", number), witness: w}
	if number < sharing {
		c.lock, c.broken = fmt.Sprintf("shared/%d", number%sharedLocks), broken
	}
	c.Client, err = leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: servers})
	return c, err
}

// work enters and leaves until ctx ends.
func (c *client) work(ctx context.Context) error {
	defer c.Close()
	options := leasehttp.AcquireOptions{TTL: ttl, MaxWait: -1}
	if c.broken {
		options.TTL = brokenTTL
	}
	for {
		held, err := c.AcquireWithRetry(ctx, c.lock, fmt.Sprintf("client-%d", c.number), options)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("client %d: %w", c.number, err)
		}
		c.visit(ctx, held)
		_ = c.ReleaseOnce(ctx, held) // on an error the lease expires
		demokit.Pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
	}
}

// visit stays inside for a moment, or for long while a heartbeat renews the lease.
func (c *client) visit(ctx context.Context, held *leasehttp.Lease) {
	c.witness.enter(c.lock, c.number, held.FencingToken())
	defer c.witness.exit(c.lock, c.number)
	if c.broken {
		<-ctx.Done()
		return
	}
	inside, _ := c.StartHeartbeat(ctx, held, leasehttp.HeartbeatOptions{})
	length := time.Duration(2+rand.IntN(18)) * time.Millisecond
	if c.number >= sharing+alone {
		length = stay
	}
	demokit.Pause(inside, length)
	if errors.Is(context.Cause(inside), leasehttp.ErrLost) {
		c.lost.Add(1)
	}
}

// A witness receives a report from every client that enters or leaves a lock. It judges by
// these reports alone.
type witness struct {
	mu     sync.Mutex
	inside map[string][]int  // clients, by lock
	tokens map[string]uint64 // the latest of each lock
	visits []visit           // the latest
	total  int
	twice  []string // violations seen
	fell   []string
}

// A visit is the moment at which a client entered a lock.
type visit struct {
	at     time.Time
	client int
}

// mostVisits is the least number of visits that are kept: some minutes.
const mostVisits = 100_000

func newWitness() *witness {
	return &witness{inside: make(map[string][]int), tokens: make(map[string]uint64)}
}

// enter records that a client is inside from now on.
func (w *witness) enter(lock string, client int, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total++
	if len(w.visits) == 2*mostVisits {
		w.visits = slices.Clone(w.visits[mostVisits:])
	}
	w.visits = append(w.visits, visit{time.Now(), client})
	for _, other := range w.inside[lock] {
		w.twice = append(w.twice, fmt.Sprintf("client %d went into %s while client %d was inside", client, lock, other))
	}
	w.inside[lock] = append(w.inside[lock], client)
	if last := w.tokens[lock]; token <= last {
		w.fell = append(w.fell, fmt.Sprintf("client %d went into %s with token %d after one with %d", client, lock, token, last))
	}
	w.tokens[lock] = max(w.tokens[lock], token)
}

// exit records that a client has left.
func (w *witness) exit(lock string, client int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside[lock] = slices.DeleteFunc(w.inside[lock], func(other int) bool { return other == client })
}

// wrong returns the violations so far.
func (w *witness) wrong() (twice, fell []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.twice), slices.Clone(w.fell)
}

// count returns the number of visits and the number of clients inside.
func (w *witness) count() (total, inside int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, clients := range w.inside {
		inside += len(clients)
	}
	return w.total, inside
}

// since returns the visits after a moment, in order.
func (w *witness) since(from time.Time) []visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, _ := slices.BinarySearchFunc(w.visits, from, func(v visit, t time.Time) int { return v.at.Compare(t) })
	return slices.Clone(w.visits[first:])
}

// gap returns the longest time without a visit between a moment and the last of these visits.
func gap(from time.Time, visits []visit) (longest time.Duration) {
	for _, v := range visits {
		longest = max(longest, v.at.Sub(from))
		from = v.at
	}
	return longest
}
