package web

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/monitor/internal/shared"
)

// A scene is a live view of one address. It renders each State once, for all viewers of the address.
//
// A rendering has nothing of a viewer: it gets neither a request nor the context of one. What differs between
// viewers, such as their rights and their CSRF tokens, is not in it.
type scene struct {
	page    *Page
	address string
	name    string
	asked   url.Values
	viewers int // guarded by Page.mu

	starts starts // of the rendering that runs

	mu   sync.Mutex
	last *rendering // nil = none yet
	n    int        // of renderings
}

// A rendering shows a State to the viewers that wait for it.
type rendering struct {
	shared.Read

	state  *State
	number int    // in its scene, from 1
	frame  *frame // nil = it panicked
}

// A frame is what a scene showed of a State.
type frame struct {
	state       *State
	number      int // of its rendering
	now         int64
	parts, rows map[string]string
	order       []string // of the rows; nil = the view has no table

	mu     sync.Mutex
	events map[int][]byte // by the number of the frame that a client has; 0 = none
}

// enter returns the scene of an address, for one more viewer.
func (p *Page) enter(name string, asked url.Values) *scene {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := address(name, asked)
	s := p.scenes[at]
	if s == nil {
		s = &scene{page: p, address: at, name: name, asked: asked, starts: starts{}}
		p.scenes[at] = s
	}
	s.viewers++
	return s
}

// leave ends a scene with its last viewer.
func (p *Page) leave(s *scene) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.viewers--; s.viewers == 0 {
		delete(p.scenes, s.address)
	}
}

// frame returns what a State looks like, or a newer one. If ctx ends first, it returns the cause, and a rendering
// continues for other viewers.
func (s *scene) frame(ctx context.Context, state *State) (*frame, error) {
	for {
		d, mine := s.join(state)
		if mine {
			s.draw(d)
			return d.frame, nil
		}
		if err := d.Wait(ctx); err != nil {
			return nil, err
		}
		if d.frame != nil && !d.olderThan(state) {
			return d.frame, nil
		}
	}
}

// join returns the rendering to wait for. If the last one has ended and shows an older State, the caller makes the next one.
func (s *scene) join(state *State) (d *rendering, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d = s.last
	if d != nil && (d.Fresh(0) || d.frame != nil && !d.olderThan(state)) {
		return d, false
	}
	s.n++
	d = &rendering{Read: shared.Begin(), state: state, number: s.n}
	s.last = d
	return d, true
}

func (d *rendering) olderThan(state *State) bool {
	return d.state != state && !d.state.Ended.After(state.Ended)
}

// draw renders. It has no context of a viewer: those who wait must not lose the result if this one leaves.
func (s *scene) draw(d *rendering) {
	defer d.End()
	v := s.page.view(context.Background(), s.name, s.asked, d.state, s.starts)
	f := &frame{state: d.state, number: d.number, now: v.Now, parts: map[string]string{}, events: map[int][]byte{}}
	for _, name := range v.parts() {
		f.parts[name] = v.part(name)
	}
	if v.Rows != nil {
		f.rows, f.order = make(map[string]string, len(v.Rows)), make([]string, len(v.Rows))
		for i, row := range v.Rows {
			f.rows[row.ID], f.order[i] = render("row", row), row.ID
		}
	}
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
