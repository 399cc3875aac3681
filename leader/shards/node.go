package shards

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/stream"
	"github.com/pglatch/pglatch/leader"
)

// A Shard is the unit that one node at a time works on. Its term is a fencing token: it is greater than
// all earlier terms of the same shard, on every node.
type Shard struct {
	Name string
	Term leader.Term
}

// A Node owns its part of a group's shards while Run runs. Its methods are safe for concurrent use.
//
// The goroutine that called Run drives the node: it alone decides what to claim and release, and waits for the callbacks,
// one at a time. Calls of the backend and of List run in other goroutines; a session has one call at a time. Each session
// has a goroutine that renews it, so no ownership is lost because of a slow call. Each shard's work has its own goroutine.
type Node struct {
	config   Config
	comeback renew.Comeback // of each session
	log      *slog.Logger
	streams  stream.Set[Event]
	wake     chan struct{} // receives a value when the driving goroutine has something to do
	look     chan struct{} // receives a value when a backend has changes
	weighed  chan struct{} // receives a value when the weight was set

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
		config: config, comeback: config.times().Comeback(), weight: config.Weight, log: config.Logger.With(slog.String("shards", config.Name)),
		wake: make(chan struct{}, 1), look: make(chan struct{}, 1), weighed: make(chan struct{}, 1),
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

// Owned returns the shards on which this node may work now, sorted by name. It does no I/O. Like the
// contexts of the shards, it checks the clock.
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

// SetWeight changes this node's part of the shards. With a smaller weight, the node gives some shards up, if
// others take them. If the weight is invalid, SetWeight returns an error and changes nothing.
func (n *Node) SetWeight(weight int) error {
	if weight < 1 || weight > MaxWeight {
		return wrongWeight(weight)
	}
	n.mu.Lock()
	n.weight = weight
	n.mu.Unlock()
	notify(n.weighed)
	return nil
}

// notify sends to a channel with a buffer of one, unless the buffer is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // already notified
	}
}
