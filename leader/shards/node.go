package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/pglatch/pglatch/internal/stream"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// A Shard is the unit that one node at a time works on. Its term is greater than all earlier terms of the
// same shard, on every node: a fencing token.
type Shard struct {
	Name string
	Term leader.Term
}

// A Node owns a part of a group's shards for its process, while Run runs. Its methods are safe for concurrent
// use.
//
// The goroutine that called Run drives the node: it alone decides what to claim and release, and calls the
// callbacks. Calls of the backend, one at a time on each session, and of List run in other goroutines. Each
// session has a goroutine that renews it, so a slow call costs no ownership. Each shard's work has its own
// goroutine.
type Node struct {
	config  Config
	log     *slog.Logger
	streams stream.Set[Event]
	wake    chan struct{} // receives a value when the driving goroutine has something to do
	look    chan struct{} // receives a value when a look is worthwhile

	mu       sync.Mutex
	running  bool
	weight   int
	sessions []*session            // by index; nil = none
	owned    map[string]*ownership // including those that are being given up
	stale    map[string]*ownership // no longer owned, but their work still runs
	ready    []*ownership          // to be released: no work of them runs
	drains   []*ownership          // waiting for their work to end, ordered by due time
	gone     []string              // lost since the driving goroutine last checked
	shunned  map[string]*shunning
	known    knowledge
	events   []Event // not reported yet
	stats    Stats
}

// New validates config and returns a Node, which does nothing until Run.
func New(config Config) (*Node, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		config: config, weight: config.Weight, log: config.Logger.With(slog.String("shards", config.Name)),
		wake: make(chan struct{}, 1), look: make(chan struct{}, 1),
		sessions: make([]*session, config.Backend.Sessions()),
		owned:    map[string]*ownership{}, stale: map[string]*ownership{}, shunned: map[string]*shunning{},
	}
	n.streams.Expendable = Event.expendable
	return n, nil
}

// Name returns the group's name.
func (n *Node) Name() string { return n.config.Name }

// Identity returns this node's identity.
func (n *Node) Identity() string { return n.config.Identity }

// Owned returns the shards on which this node may work now, by name. It does no I/O and checks the clock, as
// their contexts do.
func (n *Node) Owned() []Shard {
	n.mu.Lock()
	var all []Shard
	for _, o := range n.owned {
		if o.ctx.Context.Err() == nil && !o.session.until.Passed() {
			all = append(all, o.shard)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// SetWeight changes this node's part of the shards. With a smaller weight it gives some up, as far as others
// take them. It returns an error for an invalid weight, and then changes nothing.
func (n *Node) SetWeight(weight int) error {
	if weight < 1 || weight > MaxWeight {
		return wrongWeight(weight)
	}
	n.mu.Lock()
	n.weight = weight
	n.mu.Unlock()
	notify(n.look)
	return nil
}

// Pin assigns a shard to the node of this identity while that node takes part, regardless of who else has
// room. "" removes the pin. A pin outlives this node. The error matches errors.ErrUnsupported if the backend
// cannot pin.
func (n *Node) Pin(ctx context.Context, shard, identity string) error {
	return n.operate("pinning "+shard, func(o driver.Operator) error { return o.Pin(ctx, shard, identity) })
}

// Drain makes the node of this identity give up its shards, as far as others can take them, and claim
// nothing; false ends that. A drain outlives the nodes. The error matches errors.ErrUnsupported if the
// backend cannot drain.
func (n *Node) Drain(ctx context.Context, identity string, drain bool) error {
	return n.operate("draining "+identity, func(o driver.Operator) error { return o.Drain(ctx, identity, drain) })
}

func (n *Node) operate(what string, do func(driver.Operator) error) error {
	err := fmt.Errorf("%T cannot: %w", n.config.Backend, errors.ErrUnsupported)
	if operator, ok := n.config.Backend.(driver.Operator); ok {
		err = do(operator)
	}
	if err != nil {
		return fmt.Errorf("shards: %s: %s: %w", n.config.Name, what, err)
	}
	return nil
}

// notify sends to a channel with a buffer of one, unless the buffer is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // already notified
	}
}
