package web

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// siteWait is how long the list waits for one database or lock server.
const siteWait = 1500 * time.Millisecond

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
	assets    *Page
}

// NewSite returns a Site.
func NewSite(databases []Database, refuse func(w http.ResponseWriter, status int, detail string)) *Site {
	return &Site{databases: databases, refuse: refuse, assets: New(Config{})}
}

// Add adds a lock server, before the first request.
func (s *Site) Add(server LockServer) { s.servers = append(s.servers, &serverReader{server: server}) }

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
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.refuse(w, http.StatusMethodNotAllowed, "use GET or HEAD")
		return
	}
	w.Header().Set("Content-Security-Policy", policy)
	name := path.Base("/" + r.URL.Path)
	if r.URL.Path == "" || strings.HasSuffix(r.URL.Path, "/") {
		name = ""
	}
	switch name {
	case "":
		s.assets.html(w, http.StatusOK, "site", s.view(r.Context(), nil))
	case "page.css", "page.js", "icon.svg":
		s.assets.ServeHTTP(w, r)
	case "live":
		s.live(w, r)
	case "metrics":
		var m metrics
		databases, servers := s.look(r.Context())
		for i, seen := range databases {
			m.add(s.databases[i].Name, seen.state)
		}
		for _, server := range servers {
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

// look asks all databases and lock servers at once. None waits for another.
func (s *Site) look(ctx context.Context) ([]seen, []serverView) {
	ctx, cancel := context.WithTimeout(ctx, siteWait)
	defer cancel()
	databases, servers := make([]seen, len(s.databases)), make([]serverView, len(s.servers))
	var work sync.WaitGroup
	for i, d := range s.databases {
		work.Go(func() { databases[i].state, databases[i].err = d.Look(ctx) })
	}
	for i, server := range s.servers {
		work.Go(func() { servers[i] = server.view(ctx) })
	}
	work.Wait()
	return databases, servers
}

// view returns the list. known has the ages that a client has, for each database; nil = none.
func (s *Site) view(ctx context.Context, known []starts) *siteView {
	v := &siteView{At: time.Now()}
	databases, servers := s.look(ctx)
	v.Servers = servers
	for i, seen := range databases {
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
	v.Now = v.At.UnixMilli()
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
	databases, servers := s.look(r.Context())
	for _, server := range servers {
		if server.Why != "" {
			down = append(down, server.Name)
		}
	}
	for i, seen := range databases {
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
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	sent, known := map[string]string{}, make([]starts, len(s.databases))
	for i := range known {
		known[i] = starts{}
	}
	for {
		v := s.view(r.Context(), known)
		u := update{Now: v.Now, Parts: map[string]string{}}
		for _, name := range []string{"databases", "servers", "verdicts"} {
			if html := render("part-"+name, v); sent[name] != html {
				sent[name], u.Parts[name] = html, html
			}
		}
		data, err := json.Marshal(u)
		if err != nil {
			panic("BUG: monitor: " + err.Error())
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server supports it
		if _, err := w.Write(message("view", data)); err != nil {
			return
		}
		if control.Flush() != nil || pause.For(r.Context(), time.Second) != nil {
			return
		}
	}
}
