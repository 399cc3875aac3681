package incident

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// A Cycle is a deadlock: each step waits for a lock that the next one holds, and the last for one of the first.
type Cycle struct {
	Steps []Step
}

// A Step is one waiter in a Cycle.
type Step struct {
	Who, Label string
	Process    *Process
	PID        uint32
	Wants      *Key
	Age        time.Duration
	Holds      *Key // the key that the previous step wants; nil = this one is only ahead of it in the queue
}

// Keys returns the keys of the cycle, each once.
func (c Cycle) Keys() (all []*Key) {
	for _, s := range c.Steps {
		if !slices.Contains(all, s.Wants) {
			all = append(all, s.Wants)
		}
	}
	return all
}

// A graph describes which waiter waits for which. Its nodes are the waiters, and for each waiter one more that
// stands for "this waiter and all ahead of it". A queue of n thus has n edges.
//
// A waiter can proceed when all nodes in its all, and all nodes of one alternative in any, if it has
// alternatives, have proceeded.
type graph struct {
	nodes []node
}

type node struct {
	waiter *Waiter
	key    *Key
	all    []int
	any    [][]int // alternatives: the callers that hold each slot; one alternative must proceed completely
	gone   bool
}

func (g *graph) add(n node) int {
	g.nodes = append(g.nodes, n)
	return len(g.nodes) - 1
}

// cycles finds the deadlocks of a picture, one in each connected group. It repeatedly removes the waiters that
// nothing blocks. The remaining waiters wait forever, each for one of a cycle.
func cycles(p *Picture) []Cycle {
	g := new(graph)
	// The waits of each holder: by process and lock, or by session.
	type hold struct {
		process *Process
		tag     namespace.Tag
	}
	holding := map[hold][]int{}
	index := map[*Waiter]int{}
	sessions := map[uint32][]int{}
	for _, k := range p.Keys {
		for _, w := range k.Waiters {
			i := g.add(node{waiter: w, key: k})
			index[w] = i
			for _, t := range w.Holds {
				holding[hold{w.Process, t}] = append(holding[hold{w.Process, t}], i)
			}
			if w.Process == nil && w.PID != 0 {
				sessions[w.PID] = append(sessions[w.PID], i)
			}
		}
	}
	if len(holding)+len(sessions) == 0 {
		return nil // no waiter holds a lock
	}
	callers := func(h *Holder) []int {
		if h.Process != nil {
			return holding[hold{h.Process, h.Tag}]
		}
		return sessions[h.PID]
	}
	for _, k := range p.Keys {
		if k.Kind == Semaphore {
			g.semaphore(k, index, callers)
		} else {
			g.mutex(k, index, callers)
		}
	}
	g.reduce()
	return g.name()
}

// mutex adds the edges of a key's queue.
func (g *graph) mutex(k *Key, index map[*Waiter]int, callers func(*Holder) []int) {
	var held, heldExclusive []int
	for _, h := range k.Holders {
		c := callers(h)
		held = append(held, c...)
		if !h.Shared {
			heldExclusive = append(heldExclusive, c...)
		}
	}
	all := map[*Process]int{} // the chain of the waiters ahead: at the server (nil), and inside each process
	exclusive := map[*Process]int{}
	for _, w := range k.Waiters {
		i := index[w]
		n := &g.nodes[i]
		line := w.Process
		if w.Row >= 0 {
			line = nil
		}
		before, chain := heldExclusive, exclusive
		if !w.Shared {
			before, chain = held, all
		}
		for _, c := range before {
			if c != i {
				n.all = append(n.all, c)
			}
		}
		lines := []*Process{line}
		if w.Row >= 0 && w.Process != nil {
			lines = append(lines, w.Process) // it is the first of this process, too
		}
		if at, ok := chain[line]; ok {
			n.all = append(n.all, at)
		}
		for _, l := range lines {
			link := func(chain map[*Process]int) {
				deps := []int{i}
				if at, ok := chain[l]; ok {
					deps = append(deps, at)
				}
				chain[l] = g.add(node{all: deps})
			}
			link(all)
			if !w.Shared {
				link(exclusive)
			}
		}
	}
}

// semaphore adds the edges of its waiters, for which any slot will do.
func (g *graph) semaphore(k *Key, index map[*Waiter]int, callers func(*Holder) []int) {
	slots := map[namespace.Tag][]int{}
	held := map[namespace.Tag]bool{}
	for _, h := range k.Holders {
		held[h.Tag] = true
		slots[h.Tag] = append(slots[h.Tag], callers(h)...)
	}
	if len(held) < k.Slots {
		return // a slot is free
	}
	for _, w := range k.Waiters {
		for _, c := range slots {
			if !slices.Contains(c, index[w]) {
				g.nodes[index[w]].any = append(g.nodes[index[w]].any, c)
			}
		}
	}
}

// reduce marks the nodes that can proceed.
func (g *graph) reduce() {
	behind := make([][]int, len(g.nodes))
	for i, n := range g.nodes {
		for _, d := range n.all {
			behind[d] = append(behind[d], i)
		}
		for _, slot := range n.any {
			for _, d := range slot {
				behind[d] = append(behind[d], i)
			}
		}
	}
	work := make([]int, len(g.nodes))
	for i := range work {
		work[i] = i
	}
	left := make([]int, len(g.nodes)) // remaining nodes of all
	for i, n := range g.nodes {
		left[i] = len(n.all)
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		n := &g.nodes[i]
		if n.gone || left[i] > 0 || !g.oneGone(n.any) {
			continue
		}
		n.gone = true
		for _, b := range behind[i] {
			for _, d := range g.nodes[b].all {
				if d == i {
					left[b]--
				}
			}
			work = append(work, b)
		}
	}
}

// oneGone reports whether all nodes of one alternative have proceeded.
func (g *graph) oneGone(slots [][]int) bool {
	if len(slots) == 0 {
		return true
	}
	return slices.ContainsFunc(slots, func(slot []int) bool {
		return !slices.ContainsFunc(slot, func(d int) bool { return !g.nodes[d].gone })
	})
}

// next returns the nodes that a remaining node waits for.
func (g *graph) next(i int) (out []int) {
	n := &g.nodes[i]
	for _, d := range n.all {
		if !g.nodes[d].gone {
			out = append(out, d)
		}
	}
	for _, slot := range n.any {
		for _, d := range slot {
			if !g.nodes[d].gone {
				out = append(out, d)
			}
		}
	}
	return out
}

// name finds a cycle in each connected group of remaining nodes. From each of them the path ends in a cycle.
func (g *graph) name() (all []Cycle) {
	known := make([]int, len(g.nodes)) // the walk, from 1, that visited a node; 0 = none
	for start := range g.nodes {
		if g.nodes[start].gone || known[start] != 0 {
			continue
		}
		var path []int
		at := start
		for known[at] == 0 {
			known[at] = start + 1
			path = append(path, at)
			at = g.next(at)[0] // it remained because there is one
		}
		if known[at] != start+1 {
			continue // the path joins an earlier walk
		}
		all = append(all, g.cycle(path[slices.Index(path, at):]))
	}
	return all
}

// cycle describes the nodes of a cycle.
func (g *graph) cycle(path []int) (c Cycle) {
	var waiters []*node
	for _, i := range path {
		if g.nodes[i].waiter != nil {
			waiters = append(waiters, &g.nodes[i])
		}
	}
	// Every query names it the same way.
	first := 0
	for i, n := range waiters {
		if cmp.Or(cmp.Compare(n.waiter.Who(), waiters[first].waiter.Who()), cmp.Compare(n.key.Text, waiters[first].key.Text), cmp.Compare(n.waiter.Label, waiters[first].waiter.Label)) < 0 {
			first = i
		}
	}
	waiters = append(waiters[first:], waiters[:first]...)
	for i, n := range waiters {
		before := waiters[(i+len(waiters)-1)%len(waiters)]
		s := Step{Who: n.waiter.Who(), Label: n.waiter.Label, Process: n.waiter.Process, PID: n.waiter.PID, Wants: n.key, Age: n.waiter.Age}
		for _, h := range before.key.Holders {
			if slices.Contains(n.waiter.Holds, h.Tag) && h.Process == n.waiter.Process || n.waiter.Process == nil && h.PID == n.waiter.PID {
				s.Holds = before.key
			}
		}
		c.Steps = append(c.Steps, s)
	}
	return c
}
