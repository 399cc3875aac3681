package locktable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// An exploration visits every state of a scenario, depth first. In each it demands the invariants. At the end it demands that each state has a
// fair continuation in which all callers that came are served and go.
type exploration struct {
	scenario
	bound  int // of states; 0 = none
	states int
	events int

	w       *world
	names   *canonicalizer
	numbers map[fingerprint]int32
	fair    [][2]int32 // which state follows which
	calm    []bool     // states in which all that came have gone
	origin  []origin
	depths  []*depth
}

// An origin is how a state was first reached.
type origin struct {
	from  int32
	event event
}

// A depth is what is kept of a state while the states after it are visited.
type depth struct {
	snapshot
	state  int32
	events []event
	next   int
}

// run returns the way to a violation, or nothing.
func (x *exploration) run() string {
	x.w = newWorld(x.scenario)
	x.names = newCanonicalizer(x.w)
	x.numbers = make(map[fingerprint]int32)
	at := x.enter(0, x.names.fingerprint(), origin{from: -1})
	for at >= 0 {
		d := x.depths[at]
		if d.next == len(d.events) || x.bound > 0 && len(x.origin) >= x.bound {
			at--
			continue
		}
		e := d.events[d.next]
		if d.next++; d.next > 1 {
			d.restore(x.w)
		}
		fair := x.w.fairly(e)
		if problem := guarded(func() { x.w.apply(e); x.w.invariants() }); problem != "" {
			return tell(problem, append(x.path(d.state), e), nil)
		}
		x.events++
		at = x.arrive(at, e, fair)
	}
	x.states = len(x.origin)
	return x.stuck()
}

// arrive notes the state after an event, and enters it if it is new.
func (x *exploration) arrive(at int, e event, fair bool) int {
	from, before := x.depths[at].state, len(x.origin)
	name := x.names.fingerprint()
	number, known := x.numbers[name]
	if !known {
		number = int32(before)
	}
	if fair {
		x.fair = append(x.fair, [2]int32{from, number})
	}
	if known {
		return at
	}
	return x.enter(at+1, name, origin{from, e})
}

// enter makes the present state, which is new, the one whose events come next.
func (x *exploration) enter(at int, name fingerprint, o origin) int {
	if at == len(x.depths) {
		x.depths = append(x.depths, new(depth))
	}
	d := x.depths[at]
	d.state, d.next = int32(len(x.origin)), 0
	d.events = x.w.events(d.events[:0])
	d.save(x.w)
	x.numbers[name] = d.state
	x.origin = append(x.origin, o)
	x.calm = append(x.calm, x.w.settledDown())
	return at
}

// path returns the events that led to a state.
func (x *exploration) path(state int32) (events []event) {
	for ; x.origin[state].from >= 0; state = x.origin[state].from {
		events = append(events, x.origin[state].event)
	}
	slices.Reverse(events)
	return events
}

// stuck looks for a state from which fair events do not lead to one in which all that came have gone. Each state that the bound left
// unvisited counts as good.
func (x *exploration) stuck() string {
	before := make([][]int32, len(x.origin))
	for _, f := range x.fair {
		if f[0] != f[1] {
			before[f[1]] = append(before[f[1]], f[0])
		}
	}
	var good []int32
	for i, calm := range x.calm {
		if calm {
			good = append(good, int32(i))
		}
	}
	for len(good) > 0 {
		last := good[len(good)-1]
		good = good[:len(good)-1]
		for _, i := range before[last] {
			if !x.calm[i] {
				x.calm[i] = true
				good = append(good, i)
			}
		}
	}
	if i := slices.Index(x.calm, false); i >= 0 && x.bound == 0 {
		return tell("callers are left that no fair continuation serves", x.path(int32(i)), nil)
	}
	return ""
}

// walk lets 300 events happen at random, lets the world end fairly, and returns the way to a violation, or nothing.
func walk(sc scenario, seed uint64) string {
	w := newWorld(sc)
	random := rand.New(rand.NewPCG(seed, 0))
	var way, all []event
	problem := guarded(func() {
		for range 300 {
			if all = w.events(all[:0]); len(all) == 0 {
				break
			}
			e := all[random.IntN(len(all))]
			way = append(way, e)
			w.apply(e)
			w.invariants()
		}
		w.finish(random)
	})
	if problem == "" {
		return ""
	}
	return tell(problem, way, w.trace[:min(len(w.trace), 50)])
}

// guarded runs a function and returns what it panicked with.
func guarded(f func()) (problem string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			problem = string(p)
		case BugError:
			problem = p.Error()
		default:
			problem = fmt.Sprint("panic: ", p)
		}
	}()
	f()
	return ""
}

func tell(problem string, events, then []event) string {
	var b strings.Builder
	fmt.Fprintln(&b, problem)
	for _, e := range events {
		fmt.Fprintf(&b, "  %v\n", e)
	}
	for _, e := range then {
		fmt.Fprintf(&b, "  then, fairly, %v\n", e)
	}
	return b.String()
}
