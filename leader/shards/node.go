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

// A Shard is what one node at a time works on. Its term is greater than all before it of the same
// shard, on every node: a fencing token.
type Shard struct {
	Name string
	Term leader.Term
}

// A Node owns a part of the shards of a group for its process, while it runs. Its methods are safe for concurrent use.
//
// The goroutine that called Run drives it: it alone decides what to claim and to release, and calls the
// callbacks. Calls of the backend, one at a time on each session, and of List run beside it. Another goroutine for each session renews
// it, so that nothing that is slow costs an ownership; and each shard's work has one.
type Node struct {
	config  Config
	log     *slog.Logger
	streams stream.Set[Event]
	wake    chan struct{} // has a value when the driving goroutine has something to do
	look    chan struct{} // has a value when a look is worthwhile

	mu       sync.Mutex
	running  bool
	weight   int
	sessions []*session            // by their place; nil = there is none
	owned    map[string]*ownership // also those that are being given up
	stale    map[string]*ownership // work goes on of shards that are not owned any more
	ready    []*ownership          // to be released: no work of theirs runs
	drains   []*ownership          // whose work is to end, the first that is due first
	gone     []string              // lost since the driving goroutine looked
	shunned  map[string]*shunning
	known    knowledge
	events   []Event // not reported yet
	stats    Stats
}

// New validates a config and returns a Node, which does nothing until Run.
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

// Name is the group's name.
func (n *Node) Name() string { return n.config.Name }

// Identity is this node's identity.
func (n *Node) Identity() string { return n.config.Identity }

// Owned returns the shards on which this node may work now, by name. It does no I/O, and looks at the clock, as their contexts do.
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

// SetWeight changes this node's part of the shards: with a smaller one it gives some up, as far as
// others take them. An error says that the weight is none, and changes nothing.
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

// Pin has the node of this identity own a shard as long as it takes part, whoever else has room; ""
// ends that. It stays when this node has ended. The error matches errors.ErrUnsupported if the backend cannot.
func (n *Node) Pin(ctx context.Context, shard, identity string) error {
	return n.operate("pinning "+shard, func(o driver.Operator) error { return o.Pin(ctx, shard, identity) })
}

// Drain has the node of this identity give up its shards, as far as there are others to take
// them, and claim nothing; false ends that. It stays when the nodes have ended. The error matches errors.ErrUnsupported if
// the backend cannot.
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

// notify gives a channel that holds one value that value.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has one
	}
}
