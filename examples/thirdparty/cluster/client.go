package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
