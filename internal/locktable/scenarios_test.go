package locktable

import (
	"fmt"
	"strings"
)

// x, s and try are acquisitions of mutexes; slot is one of a slot.
func x(keys ...int) acquisition { return acquisition{keys: keys} }
func s(keys ...int) acquisition { return acquisition{keys: keys, mode: Shared} }
func try(key int) acquisition   { return acquisition{keys: []int{key}, try: true} }
func tryShared(key int) acquisition {
	return acquisition{keys: []int{key}, try: true, mode: Shared}
}
func slot(n int) acquisition { return acquisition{keys: []int{semaphoreKey}, slots: n} }

// one makes an actor of each acquisition.
func one(a ...acquisition) [][]acquisition {
	all := make([][]acquisition, len(a))
	for i := range a {
		all[i] = []acquisition{a[i]}
	}
	return all
}

// requests are the kinds of requests for two keys.
var requests = []acquisition{x(0), s(0), try(0), x(1), s(1), try(1)}

// pairs are all multisets of two requests, and triples of three, up to an exchange of the keys.
func pairs() (all [][][]acquisition) {
	for i, a := range requests[:3] {
		for _, b := range requests[i:] {
			all = append(all, one(a, b))
		}
	}
	return all
}

func triples() (all [][][]acquisition) {
	for i, a := range requests[:3] { // at least two are for the first key
		for j, b := range requests[i:3] {
			for _, c := range requests[i+j:] {
				all = append(all, one(a, b, c))
			}
		}
	}
	return all
}

// each makes a scenario of each set of actors.
func each(actors [][][]acquisition, like scenario) (all []scenario) {
	for _, a := range actors {
		like.actors = a
		all = append(all, like)
	}
	return all
}

// String says what an actor asks for: x = exclusive, s = shared, t = by a try.
func (q acquisition) String() string {
	kind := "x"
	switch {
	case q.slots > 0:
		return fmt.Sprintf("one of %d slots", q.slots)
	case q.try:
		kind = "t"
	case q.mode == Shared:
		kind = "s"
	}
	if q.try && q.mode == Shared {
		kind = "ts"
	}
	return kind + strings.Trim(fmt.Sprint(q.keys), "[]")
}

// small are the scenarios that find the mutants, by name. Each is explored in a second at most.
var small = map[string]scenario{
	"two exclusive":       {conns: 2, perConn: 2, actors: one(x(0), x(0)), losses: 1, withdraw: true, refuse: true},
	"two dedicated":       {conns: 2, perConn: 1, actors: one(x(0), x(0)), losses: 1, withdraw: true, refuse: true},
	"two shared":          {conns: 2, perConn: 2, actors: one(s(0), s(0)), losses: 1, withdraw: true},
	"two shared, aged":    {conns: 2, perConn: 2, actors: one(s(0), s(0)), losses: 1, withdraw: true, aged: true},
	"reader and try":      {conns: 2, perConn: 2, actors: one(s(0), tryShared(0)), losses: 1, withdraw: true, aged: true},
	"both modes":          {conns: 2, perConn: 2, actors: one(x(0), s(0)), losses: 1, withdraw: true},
	"both modes, closed":  {conns: 2, perConn: 2, actors: one(x(0), s(0)), losses: 1, closes: true},
	"dedicated, closed":   {conns: 2, perConn: 1, actors: one(x(0), s(0)), losses: 1, closes: true},
	"exclusive and try":   {conns: 2, perConn: 2, actors: one(x(0), try(0)), losses: 1, withdraw: true, refuse: true},
	"two keys":            {conns: 2, perConn: 2, actors: one(x(0), x(1)), losses: 1, withdraw: true, prompt: true},
	"two keys, dedicated": {conns: 1, perConn: 1, actors: one(x(0), x(1)), losses: 1, withdraw: true},
	"two keys, one":       {conns: 1, perConn: 2, actors: one(x(0), x(1)), losses: 1, withdraw: true},
	"slots":               {conns: 2, perConn: 2, actors: one(slot(1), slot(1)), losses: 1, withdraw: true},
	"slots, dedicated":    {conns: 2, perConn: 1, actors: one(slot(2), slot(2)), losses: 1, withdraw: true},
	"slot and its mutex":  {conns: 2, perConn: 2, actors: one(slot(1), x(-1)), losses: 1, withdraw: true, prompt: true},
	"all of two":          {conns: 2, perConn: 2, actors: one(x(0, 1), x(0, 1)), losses: 1, withdraw: true},
	"all, dedicated":      {conns: 2, perConn: 1, actors: one(x(0, 1), s(0, 1)), losses: 1, withdraw: true},
	"nested":              {conns: 2, perConn: 2, actors: [][]acquisition{{x(0), x(1)}, {x(1), x(0)}}, prompt: true},
	"nested, dedicated":   {conns: 2, perConn: 1, actors: [][]acquisition{{x(0), x(1)}, {x(1), x(0)}}, losses: 1},
	"reentrant":           {conns: 1, perConn: 2, actors: [][]acquisition{{x(0), x(0)}}},
	"readers, writer":     {conns: 1, perConn: 2, actors: one(s(0), s(0), x(0)), prompt: true},
	"all, shared":         {conns: 2, perConn: 2, actors: one(s(0, 1), s(0, 1)), prompt: true},
	"one connection":      {conns: 1, perConn: 1, actors: one(x(0), try(0), x(1))},
	"borrower":            {conns: 2, perConn: 2, actors: one(x(0)), losses: 1, withdraw: true, borrowed: 2},
}

// Search explores one of the small scenarios.
func Search(name string) (problem string) {
	e := exploration{scenario: small[name]}
	if stopped := guarded(func() { problem = e.run() }); stopped != "" {
		return stopped
	}
	return problem
}
