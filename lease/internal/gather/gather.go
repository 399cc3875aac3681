// Package gather lets calls share requests: calls that arrive while some requests are under way go
// out together in the next one.
package gather

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// A Group gathers calls. A call that arrives while fewer than Flights flights are under way
// goes out at once. The fields must not change after the first call.
type Group[C comparable] struct {
	Flights int // that are under way at a time, without overdue ones
	Most    int // calls in one flight

	// Patience is how long a flight makes later calls wait. After that, they go out without waiting
	// for it. If the last flight took longer than Patience, later calls wait for twice the time of
	// that flight, up to MostPatience. 0 = until the flight lands.
	Patience, MostPatience time.Duration

	// Fly sends calls and answers them. It calls take once, when it can send, and answers all calls
	// that take returns, if there are any.
	Fly func(take func() []C)

	mu       sync.Mutex
	waiting  []C
	inFlight int
	took     time.Duration // the flight that landed last
	closed   bool
	wg       sync.WaitGroup // guarded by mu, except Wait
}

// Add accepts a call; false if the group is closed. Fly receives each accepted call that was not
// dropped.
func (g *Group[C]) Add(c C) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.waiting = append(g.waiting, c)
	g.start()
	return true
}

// start begins a flight, if one is needed and allowed. It is called with mu held.
func (g *Group[C]) start() {
	if g.inFlight < g.Flights && len(g.waiting) > 0 {
		g.inFlight++
		g.wg.Go(g.serve)
	}
}

// Drop removes a call that no flight has taken yet; false if one has.
func (g *Group[C]) Drop(c C) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, c)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// Length returns how many calls wait.
func (g *Group[C]) Length() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// Go runs f in a goroutine for which Close waits. Call it only during a flight.
func (g *Group[C]) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wg.Go(f)
}

// Close refuses later calls, and blocks until all others are answered.
func (g *Group[C]) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// A flight is one call of Fly.
type flight struct {
	start    time.Time
	patience time.Duration
	over     bool // it has landed, or is overdue
}

// serve flies until no call waits.
func (g *Group[C]) serve() {
	for f := g.begin(nil); f != nil; f = g.begin(f) {
		if g.Patience == 0 {
			g.Fly(g.take)
			continue
		}
		timer := time.AfterFunc(f.patience, func() { g.goWithout(f) })
		g.Fly(g.take)
		timer.Stop()
	}
}

// begin returns the flight after last; nil if no call waits, or last was overdue: then others have
// flown since.
func (g *Group[C]) begin(last *flight) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last != nil {
		g.took = time.Since(last.start)
		if last.over {
			return nil
		}
		last.over = true
	}
	if len(g.waiting) == 0 {
		g.inFlight--
		return nil
	}
	return &flight{start: time.Now(), patience: max(g.Patience, min(2*g.took, g.MostPatience))}
}

// goWithout lets others fly although a flight is under way.
func (g *Group[C]) goWithout(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !f.over {
		f.over = true
		g.inFlight--
		g.start()
	}
}

func (g *Group[C]) take() []C {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), g.Most)
	batch := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil // releases the memory of the calls that were taken
	}
	return batch
}

// turns is how often, at most, a group lets other goroutines run before it takes calls. It never
// waits for one.
const turns = 16

// Settle lets other goroutines run while they add calls: for Fly, before it takes them. Those that
// were woken together then share a flight.
func (g *Group[C]) Settle() {
	for turn, before := 0, 0; turn < turns; turn++ {
		runtime.Gosched()
		n := g.Length()
		if n == before || n >= g.Most {
			return
		}
		before = n
	}
}

// Yield lets other goroutines run until at least answered calls wait. It is for Fly, after it has
// answered that many calls. Callers that continue at once then share the next flight. Otherwise
// they would fall into two halves, each of which waits for the flight of the other.
func (g *Group[C]) Yield(answered int) {
	for turn := 0; turn < turns && g.Length() < answered; turn++ {
		runtime.Gosched()
	}
}
