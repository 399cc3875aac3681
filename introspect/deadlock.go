package introspect

import (
	"slices"
	"strings"

	"github.com/pglatch/pglatch/namespace"
)

// A Cycle is a deadlock. The caller of each step waits for a lock that the caller of the next step
// holds. The caller of the last step waits for a lock of the first.
type Cycle []Step

// A Step is one wait of a cycle.
type Step struct {
	Process Process
	Wait    Wait
}

// String returns text such as "billing@web-1 (4711) waits for order/7, which report@web-2 (815)
// holds, which waits for …".
func (c Cycle) String() string {
	var b strings.Builder
	for i, s := range c {
		next := c[(i+1)%len(c)]
		if i > 0 {
			b.WriteString(", which")
		} else {
			b.WriteString(s.Process.String())
		}
		b.WriteString(" waits for " + s.Wait.Key)
		if s.Wait.Label != "" {
			b.WriteString(" (" + s.Wait.Label + ")")
		}
		b.WriteString(", which " + next.Process.String() + " holds")
	}
	return b.String()
}

// Youngest returns the step whose wait began last. It is the one to end, because it has waited for
// the shortest time.
func (c Cycle) Youngest() Step {
	return slices.MinFunc(c, func(a, b Step) int {
		if a.Wait.Age != b.Wait.Age {
			return int(min(max(a.Wait.Age-b.Wait.Age, -1), 1))
		}
		return a.Process.compare(b.Process)
	})
}

// Same reports whether two cycles consist of the same waits.
func (c Cycle) Same(d Cycle) bool {
	return len(c) == len(d) && !slices.ContainsFunc(c, func(s Step) bool { return !d.has(s) })
}

// Cycles finds deadlocks in the answers of processes. Each wait in a deadlock is in one of the
// returned cycles, and each cycle is the shortest through its first wait. The answers are from
// different moments, so a cycle may not be real. It is real if a second question finds it again,
// with the same waits. Waits for semaphores are never in a cycle, because any slot ends them.
func (a Answers) Cycles() (cycles []Cycle) {
	var steps []Step
	byLock := make(map[namespace.Tag][]int) // the steps whose callers hold a lock
	for _, p := range a.Answers {
		for _, w := range p.Waits {
			if w.Semaphore {
				continue
			}
			for _, held := range w.Holds {
				byLock[held] = append(byLock[held], len(steps))
			}
			steps = append(steps, Step{p.Process.As(w.Service), w})
		}
	}
	shared := a.sharedLocks()
	next := func(i int) (blockers []int) {
		w := steps[i].Wait
		for _, j := range byLock[w.Tag] {
			if !w.Shared || !shared[lockOf{steps[j].Process.ID, w.Tag}] {
				blockers = append(blockers, j)
			}
		}
		return blockers
	}
	for i := range steps {
		if slices.ContainsFunc(cycles, func(c Cycle) bool { return c.has(steps[i]) }) {
			continue
		}
		if found := shortest(i, next); found != nil {
			var c Cycle
			for _, j := range found {
				c = append(c, steps[j])
			}
			cycles = append(cycles, c)
		}
	}
	return cycles
}

// A lockOf identifies a lock of a process.
type lockOf struct {
	process string
	tag     namespace.Tag
}

// sharedLocks returns the locks that are held in shared mode.
func (a Answers) sharedLocks() map[lockOf]bool {
	shared := make(map[lockOf]bool)
	for _, p := range a.Answers {
		for _, l := range p.Locks {
			if l.Shared {
				shared[lockOf{p.Process.ID, l.Tag}] = true
			}
		}
	}
	return shared
}

// has reports whether a step is in the cycle.
func (c Cycle) has(s Step) bool {
	return slices.ContainsFunc(c, s.Is)
}

// Is reports whether two steps are the same wait.
func (s Step) Is(t Step) bool { return s.Process.ID == t.Process.ID && s.Wait.ID == t.Wait.ID }

// shortest returns the shortest path from a node back to it, or nil.
func shortest(from int, next func(int) []int) (way []int) {
	before := map[int]int{}
	queue := []int{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, to := range next(at) {
			if to == from {
				for ; at != from; at = before[at] {
					way = append(way, at)
				}
				way = append(way, from)
				slices.Reverse(way)
				return way
			}
			if _, seen := before[to]; !seen {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
}
