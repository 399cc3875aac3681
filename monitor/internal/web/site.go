package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/monitor/internal/shared"
)

const (
	// siteWait is how long the list waits for one database or lock server.
	siteWait = 1500 * time.Millisecond
	// siteEvery is the time from one state to the next for a viewer, and siteFresh how old one may be for another viewer.
	siteEvery, siteFresh = time.Second, time.Second / 2
)

// A Database is one of a Site.
type Database struct {
	Name string
	Look func(ctx context.Context) (*State, error)
}

// A Site lists databases and lock servers.
type Site struct {
	databases []Database
	servers   []*serverReader
	refuse    func(w http.ResponseWriter, status int, detail string)
	reader    shared.Reader[*siteState] // for those who view the list live
	scenes    scenes[*siteState]
}

// NewSite returns a Site.
func NewSite(databases []Database, refuse func(w http.ResponseWriter, status int, detail string)) *Site {
	s := &Site{databases: databases, refuse: refuse}
	s.reader = shared.Reader[*siteState]{Every: siteFresh, Do: func() *siteState { return s.look(context.Background()) }}
	return s
}

// Add adds a lock server, before the first request.
func (s *Site) Add(server LockServer) { s.servers = append(s.servers, newServerReader(server)) }

// A siteView is the data of the list.
type siteView struct {
	Now       int64
	At        time.Time
	Databases []databaseView
	Servers   []serverView
	Verdicts  []card
}

// A databaseView is one line of the list.
type databaseView struct {
	Name, Why string // Why it does not answer; "" = it does
	Status    status
	Shards    string
}

// ServeHTTP serves what the last element of the path names.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(w, r, s.refuse, s.serve)
}

func (s *Site) serve(w http.ResponseWriter, r *http.Request, name string) {
	switch name {
	case "":
		writeHTML(w, http.StatusOK, "site", s.view(s.look(r.Context()), nil))
	case "live":
		s.live(w, r)
	case "metrics":
		var m metrics
		state := s.look(r.Context())
		for i, seen := range state.databases {
			m.add(s.databases[i].Name, seen.state)
		}
		for _, server := range state.servers {
			m.addServer(server)
		}
		m.write(w)
	case "verdicts":
		s.verdicts(w, r)
	default:
		s.refuse(w, http.StatusNotFound, "no database has this name: the list is at the path that ends in a slash")
	}
}

// A seen is the answer of one database: a state, or an error.
type seen struct {
	state *State
	err   error
}

// A siteState is what all databases and lock servers answer at one time. It is immutable.
type siteState struct {
	databases []seen
	servers   []serverView
	at        time.Time // when it was complete
}

func (s *siteState) ended() time.Time { return s.at }

// look asks all databases and lock servers at once. None waits for another.
func (s *Site) look(ctx context.Context) *siteState {
	ctx, cancel := context.WithTimeout(ctx, siteWait)
	defer cancel()
	state := &siteState{databases: make([]seen, len(s.databases)), servers: make([]serverView, len(s.servers))}
	var work sync.WaitGroup
	for i, d := range s.databases {
		work.Go(func() { state.databases[i].state, state.databases[i].err = d.Look(ctx) })
	}
	for i, server := range s.servers {
		work.Go(func() { state.servers[i] = server.view(ctx) })
	}
	work.Wait()
	state.at = time.Now()
	return state
}

// next returns the state after the one that a viewer has; nil = none. All viewers ask at the same time, and share it.
func (s *Site) next(ctx context.Context, last *siteState) (*siteState, error) {
	if last != nil {
		if err := pause.For(ctx, time.Until(last.at.Add(siteEvery))); err != nil {
			return nil, err
		}
	}
	return s.reader.Look(ctx)
}

// view returns the list. known has the ages that clients have, for each database; nil = none.
func (s *Site) view(state *siteState, known []starts) *siteView {
	v := &siteView{At: state.at, Now: state.at.UnixMilli(), Servers: state.servers}
	for i, seen := range state.databases {
		d := databaseView{Name: s.databases[i].Name}
		if seen.err != nil {
			d.Why = why(seen.err)
			v.Databases = append(v.Databases, d)
			continue
		}
		one := &view{state: seen.state, At: seen.state.Picture.At}
		if known != nil {
			one.starts = known[i]
		}
		one.figures()
		d.Status = one.Status
		v.Databases = append(v.Databases, d)
		for j := range seen.state.Verdicts {
			c := one.card(&seen.state.Verdicts[j])
			c.in(d.Name)
			v.Verdicts = append(v.Verdicts, c)
		}
	}
	slices.SortStableFunc(v.Verdicts, func(a, b card) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(b.Waiters, a.Waiters))
	})
	return v
}

// verdicts writes those of all databases as JSON.
func (s *Site) verdicts(w http.ResponseWriter, r *http.Request) {
	type verdict struct {
		incident.Verdict
		Database string `json:"database"`
	}
	all, down := []verdict{}, []string{}
	state := s.look(r.Context())
	for _, server := range state.servers {
		if server.Why != "" {
			down = append(down, server.Name)
		}
	}
	for i, seen := range state.databases {
		if seen.err != nil {
			down = append(down, s.databases[i].Name)
			continue
		}
		for _, v := range seen.state.Verdicts {
			all = append(all, verdict{v, s.databases[i].Name})
		}
	}
	WriteJSON(w, map[string]any{"verdicts": all, "down": down})
}

// live sends the changes of the list until the client leaves.
func (s *Site) live(w http.ResponseWriter, r *http.Request) {
	s.scenes.live(w, r, "", s.next, func() func(*siteState) *frame {
		known := make([]starts, len(s.databases))
		for i := range known {
			known[i] = starts{}
		}
		return func(state *siteState) *frame { return s.view(state, known).frame() }
	})
}

// frame renders the list for those who view it live.
func (v *siteView) frame() *frame {
	f := &frame{now: v.Now, parts: map[string]string{}}
	for _, name := range []string{"databases", "servers", "verdicts"} {
		f.parts[name] = render("part-"+name, v)
	}
	return f
}
