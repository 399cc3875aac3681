//go:build integration

package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
)

// The settings of an owner's job.
const (
	settingDSN      = "dsn"      // of the shards, through a proxy
	settingWork     = "work"     // of the transactions, straight to the server
	settingObserver = "observer" // its network and address
	settingFirst    = "first"    // the first shard of the list
	settingNodes    = "nodes"    // how many there are
	settingTrusting = "trusting" // not empty = membership decides, not locks
)

// The pace of an owner: of operations on each shard, and of transactions of all nodes.
const (
	pauseAtMost = 120 * time.Millisecond
	writesEvery = 10 * time.Millisecond
	defiance    = time.Second
	defiant     = 16 // one shard of so many
)

// An owner is a child that works on the shards that it owns.
type owner struct {
	*electiontest.Child
	observer net.Conn
	work     *pgxpool.Pool
	turn     chan struct{} // has a value when a transaction is due
	defying  sync.WaitGroup

	refused, committed, hidden, writes atomic.Int64

	mu      sync.Mutex
	working map[string]bool
	owned   map[string]leader.Term // by the events
}

// own is the role.
func own(ctx context.Context, child *electiontest.Child) error {
	config, err := pgxpool.ParseConfig(child.Settings[settingWork])
	if err != nil {
		return err
	}
	config.MaxConns = 4
	work, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer work.Close()
	network, address, _ := strings.Cut(child.Settings[settingObserver], " ")
	observer, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	c := &owner{
		Child: child, observer: observer, work: work, turn: make(chan struct{}),
		working: make(map[string]bool), owned: make(map[string]leader.Term),
	}
	node, err := c.node()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	go c.Obey(ctx, nil, func(context.Context) error { stop(); return nil }) // reads to the end of the process
	go c.pace(running)
	err = node.Run(running, c.tend)
	c.defying.Wait()
	c.tell()
	return err
}

func (c *owner) node() (*shards.Node, error) {
	backend, err := newBackend(c.Settings[settingDSN])
	if err != nil {
		return nil, err
	}
	if c.Settings[settingTrusting] != "" {
		backend = trusting{backend}
	}
	first := 0
	if _, err := fmt.Sscan(c.Settings[settingFirst], &first); err != nil {
		return nil, err
	}
	return shards.New(shards.Config{
		Name: "tenants", Backend: backend, Identity: c.Identity(), Shards: listFrom(first),
		LeaseDuration: lease, MinStay: stay, MovesPerSecond: 1000, Callbacks: c.callbacks(),
	})
}

// callbacks check the order of events.
func (c *owner) callbacks() shards.Callbacks {
	ends := func(word string) func(shards.Shard) {
		return func(s shards.Shard) {
			if c.owned[s.Name] != s.Term {
				c.Say("failed:", word, s.Name, s.Term, "but it owns", c.owned[s.Name])
			}
			delete(c.owned, s.Name)
		}
	}
	lost := ends("lost")
	return shards.Callbacks{
		OnAcquired: func(s shards.Shard) {
			if term, ok := c.owned[s.Name]; ok {
				c.Say("failed: acquired", s.Name, s.Term, "but it owns", term)
			}
			c.owned[s.Name] = s.Term
		},
		OnReleased:   ends("released"),
		OnLost:       func(s shards.Shard, _ error) { lost(s) },
		OnWorkFailed: func(s shards.Shard, err error) { c.Say("failed: work of", s.Name, err) },
		OnError:      func(err error) { c.Say("error", err) },
		OnStopped: func(err error) {
			if len(c.owned) > 0 {
				c.Say("failed: stopped, but it owns", len(c.owned))
			}
			c.Say("stopped", err)
		},
	}
}

// tend is the work of a shard: until its context ends it looks at it, and tells the observer.
func (c *owner) tend(owned context.Context, s shards.Shard) error {
	c.enter(s)
	defer c.leave(s)
	if rand.IntN(defiant) == 0 && c.Stubborn {
		c.defying.Go(func() { c.defy(owned, s) })
	}
	term, shard := int64(s.Term.Uint64()), shardOf(s.Name)
	announced := false
	ctx := c.Outlasting(owned)
	for {
		looked := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		c.send(operation{node: c.Node, shard: shard, term: s.Term, looked: looked})
		if !announced { // from here on no older term may write, not only from the first write on
			_, err := c.work.Exec(ctx, announceSQL, shard, term)
			announced = err == nil
		}
		select {
		case <-c.turn:
			if err := c.write(owned, s); err == nil {
				c.writes.Add(1)
			}
		case <-ctx.Done():
		case <-time.After(pauseAtMost/4 + rand.N(pauseAtMost*3/4)):
		}
	}
}

// enter checks that no other work on a shard is under way in this process.
func (c *owner) enter(s shards.Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working[s.Name] {
		c.Say("failed: work on", s.Name, "runs already")
	}
	c.working[s.Name] = true
}

func (c *owner) leave(s shards.Shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.working, s.Name)
}

func (c *owner) send(op operation) {
	op.pid = os.Getpid()
	_, _ = c.observer.Write(op.encode()) // one that is lost was never done
}

// pace lets one shard after the other write.
func (c *owner) pace(ctx context.Context) {
	nodes := 0
	_, _ = fmt.Sscan(c.Settings[settingNodes], &nodes)
	ticker := time.NewTicker(writesEvery * time.Duration(max(nodes, 1)))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case c.turn <- struct{}{}:
		}
	}
}

// write is one transaction, guarded unless the node is reckless.
func (c *owner) write(ctx context.Context, s shards.Shard) error {
	return c.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, writeSQL, shardOf(s.Name), int64(s.Term.Uint64()), c.Node)
		if rand.IntN(4) == 0 { // the longer it is under way, the more can happen meanwhile
			electiontest.Pause(ctx, rand.N(20*time.Millisecond))
		}
		return err
	})
}

func (c *owner) inTx(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	if !c.Reckless {
		return inTx(ctx, c.work, fn)
	}
	ctx = context.WithoutCancel(ctx)
	return pgx.BeginFunc(ctx, c.work, func(tx pgx.Tx) error { return fn(ctx, tx) })
}

// defy goes on with transactions after the end of a term: with its context, and without.
func (c *owner) defy(ctx context.Context, s shards.Shard) {
	<-ctx.Done()
	for begin := time.Now(); time.Since(begin) < defiance; electiontest.Pause(context.Background(), rand.N(100*time.Millisecond)) {
		count(c.write(ctx, s), &c.committed, &c.refused)
		// Here the context does not tell, only the server can. It lets the transaction pass as long
		// as the session is not ended, and nobody else owns the shard.
		count(c.write(context.WithoutCancel(ctx), s), &c.hidden, &c.refused)
	}
}

func count(err error, committed, refused *atomic.Int64) {
	switch {
	case err == nil:
		committed.Add(1)
	case errors.Is(err, leader.ErrNotLeader):
		refused.Add(1)
	}
}

// tell says what was counted.
func (c *owner) tell() {
	c.Say("count writes", c.writes.Load())
	c.Say("count refused", c.refused.Load())
	c.Say("count committed", c.committed.Load())
	c.Say("count hidden", c.hidden.Load())
}
