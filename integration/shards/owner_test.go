//go:build integration

package shards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
)

// The settings of an owner's job.
const (
	settingDSN      = "dsn"      // of the shards, through a proxy
	settingWork     = "work"     // of the transactions, straight to the server
	settingFirst    = "first"    // the first shard of the list
	settingNodes    = "nodes"    // how many there are
	settingPace     = "pace"     // a pace
	settingTrusting = "trusting" // not empty = membership decides, not locks
)

// The pace of an owner: of operations on each shard, and of transactions of all nodes.
const (
	pauseAtMost = 120 * time.Millisecond
	writesEvery = 10 * time.Millisecond
	defiant     = 16 // one shard of so many
)

// An owner is a child that works on the shards that it owns.
type owner struct {
	*electiontest.Child
	writer ledgertest.Writer
	turn   chan struct{} // has a value when a transaction is due
	pace   pace

	mu      sync.Mutex
	working map[string]bool
	owned   map[string]*judge.Events
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
	c := &owner{
		Child: child, turn: make(chan struct{}), working: make(map[string]bool), owned: make(map[string]*judge.Events),
		writer: ledgertest.Writer{Pool: work, Node: fmt.Sprint(child.Node), Slow: 20 * time.Millisecond, Trace: child.Trace},
	}
	if !c.Reckless {
		c.writer.InTx = inTx
	}
	if _, err := fmt.Sscan(c.Settings[settingPace], &c.pace); err != nil {
		return err
	}
	node, err := c.node()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	go c.Obey(ctx, nil, func(context.Context) error { stop(); return nil }) // reads to the end of the process
	go c.grantTurns(running)
	err = node.Run(running, c.tend)
	c.writer.Close(c.Say)
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
		LeaseDuration: c.pace.of(lease), MinStay: c.pace.of(stay), MovesPerSecond: 1000, Callbacks: c.Trace.Shards(c.callbacks()),
	})
}

// callbacks check the order of events.
func (c *owner) callbacks() shards.Callbacks {
	see := func(event string) func(shards.Shard) {
		return func(s shards.Shard) {
			if c.owned[s.Name] == nil {
				c.owned[s.Name] = new(judge.Events)
			}
			if wrong := c.owned[s.Name].See(event, s.Term); wrong != "" {
				c.Say("failed:", event, s.Name, s.Term, wrong)
			}
		}
	}
	lost := see("lost")
	return shards.Callbacks{
		OnAcquired:   see("acquired"),
		OnReleased:   see("released"),
		OnLost:       func(s shards.Shard, _ error) { lost(s) },
		OnWorkFailed: func(s shards.Shard, err error) { c.Say("failed: work of", s.Name, err) },
		OnError:      func(err error) { c.Say("error", err) },
		OnStopped: func(err error) {
			for name, events := range c.owned {
				if wrong := events.See("stopped", leader.Term{}); wrong != "" {
					c.Say("failed: stopped", name, wrong)
				}
			}
			c.Say("stopped", err)
		},
	}
}

// tend is the work of a shard: until its context ends it looks at it, and tells the observer.
func (c *owner) tend(owned context.Context, s shards.Shard) error {
	c.enter(s)
	defer c.leave(s)
	defer c.Trace.Work(s.Name, s.Term)()
	if rand.IntN(defiant) == 0 && c.Stubborn {
		c.writer.Defy(owned, s.Name, s.Term, 100*time.Millisecond, nil)
	}
	announced := false
	ctx := c.Outlasting(owned)
	for n := uint64(1); ; n++ {
		looked := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		c.Send(judge.Operation{Key: shardOf(s.Name), Term: s.Term, N: n, Looked: looked})
		if !announced { // from here on no older term may write, not only from the first write on
			announced = c.writer.Announce(ctx, s.Name, s.Term) == nil
		}
		select {
		case <-c.turn:
			_ = c.writer.Write(owned, s.Name, s.Term)
		case <-ctx.Done():
		case <-time.After(c.pace.of(pauseAtMost/4 + rand.N(pauseAtMost*3/4))):
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

// grantTurns lets one shard after the other write.
func (c *owner) grantTurns(ctx context.Context) {
	nodes := 0
	_, _ = fmt.Sscan(c.Settings[settingNodes], &nodes)
	ticker := time.NewTicker(c.pace.of(writesEvery * time.Duration(max(nodes, 1))))
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
