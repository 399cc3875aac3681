package web

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/monitor/internal/shared"
)

// anyState is what a live view shows: a *State, or a *siteState.
type anyState interface {
	comparable

	ended() time.Time // when it was complete, by the local clock
}

// scenes are the live views that have viewers, by their addresses.
type scenes[S anyState] struct {
	mu   sync.Mutex
	open map[string]*scene[S]
}

// A scene is a live view of one address. It renders each state once, for all viewers of the address.
//
// A rendering has nothing of a viewer: it gets neither a request nor the context of one. What differs between
// viewers, such as their rights and their CSRF tokens, is not in it.
type scene[S anyState] struct {
	address string
	viewers int // guarded by scenes.mu
	render  func(S) *frame

	mu   sync.Mutex
	last *rendering[S] // nil = none yet
	n    int           // of renderings
}

// A rendering shows a state to the viewers that wait for it.
type rendering[S anyState] struct {
	shared.Read

	state  S
	number int    // in its scene, from 1
	frame  *frame // nil = it panicked
}

// A frame is what a scene showed of a state.
type frame struct {
	number      int // of its rendering
	now         int64
	parts, rows map[string]string
	order       []string // of the rows; nil = the view has no table

	mu     sync.Mutex
	events map[int][]byte // by the number of the frame that a client has; 0 = none
}

// enter returns the scene of an address, for one more viewer. renderer returns what renders the states of a new scene.
func (c *scenes[S]) enter(address string, renderer func() func(S) *frame) *scene[S] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.open[address]
	if s == nil {
		if c.open == nil {
			c.open = map[string]*scene[S]{}
		}
		s = &scene[S]{address: address, render: renderer()}
		c.open[address] = s
	}
	s.viewers++
	return s
}

// leave ends a scene with its last viewer.
func (c *scenes[S]) leave(s *scene[S]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.viewers--; s.viewers == 0 {
		delete(c.open, s.address)
	}
}

// show returns the rendering of a state, or of a newer one. If ctx ends first, it returns the cause, and a rendering
// continues for other viewers.
func (s *scene[S]) show(ctx context.Context, state S) (*rendering[S], error) {
	for {
		d, mine := s.join(state)
		if mine {
			s.draw(d)
			return d, nil
		}
		if err := d.Wait(ctx); err != nil {
			return nil, err
		}
		if d.frame != nil && !d.olderThan(state) {
			return d, nil
		}
	}
}

// join returns the rendering to wait for. If the last one has ended and shows an older state, the caller makes the next one.
func (s *scene[S]) join(state S) (d *rendering[S], mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = s.last
	if d != nil && (d.Fresh(0) || d.frame != nil && !d.olderThan(state)) {
		return d, false
	}
	s.n++
	d = &rendering[S]{Read: shared.Begin(), state: state, number: s.n}
	s.last = d
	return d, true
}

func (d *rendering[S]) olderThan(state S) bool {
	return d.state != state && !d.state.ended().After(state.ended())
}

// draw renders. It has no context of a viewer: those who wait must not lose the result if this one leaves.
func (s *scene[S]) draw(d *rendering[S]) {
	defer d.End()
	f := s.render(d.state)
	f.number, f.events = d.number, map[int][]byte{}
	d.frame = f
}

// since returns the event for a client that has an earlier frame of the scene; nil = none.
func (f *frame) since(has *frame) []byte {
	if has == nil {
		has = new(frame)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.events[has.number] == nil {
		f.events[has.number] = message("view", f.change(has))
	}
	return f.events[has.number]
}

// change returns the update from an earlier frame.
func (f *frame) change(has *frame) []byte {
	u := update{Now: f.now, Parts: changed(has.parts, f.parts)}
	if f.order != nil {
		u.Rows = changed(has.rows, f.rows)
		if has.order == nil || !slices.Equal(f.order, has.order) {
			u.Order, u.Empty = f.order, len(f.order) == 0
		}
	}
	data, err := json.Marshal(u)
	if err != nil {
		panic("BUG: monitor: " + err.Error())
	}
	return data
}

// changed returns the entries of a map that another does not have.
func changed(before, after map[string]string) map[string]string {
	all := map[string]string{}
	for name, html := range after {
		if old, ok := before[name]; !ok || old != html {
			all[name] = html
		}
	}
	return all
}
