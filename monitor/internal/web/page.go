package web

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// A State is the data to show. It is immutable.
type State struct {
	Picture  *incident.Picture
	Verdicts []incident.Verdict
	Sorted   []*incident.Key // by trouble
	Past     incident.Past
	Fleet    *fleet.Fleet // nil = not read
	Tables   bool         // a Fleet is to be read
	Ended    time.Time    // when it was complete, by the local clock
}

func (s *State) ended() time.Time { return s.Ended }

// Records are records of a store.
type Records = iter.Seq2[lease.Record, error]

// A Config sets the sources of a page's data.
type Config struct {
	// Name is the value of the label database, and Label the name that the page shows; "" = none.
	Name, Label string
	// Home is the address of the list of databases; "" = none.
	Home string
	// Look returns the newest State, and Next the next one after that, a second later.
	Look func(ctx context.Context) (*State, error)
	Next func(ctx context.Context, last *State) (*State, error)
	// Refuse writes an error.
	Refuse func(w http.ResponseWriter, status int, detail string)
	// Leases are those of a store. nil = none.
	Leases func(ctx context.Context, r lease.ListRequest) Records
	// Recording is false if the past has only what viewers saw.
	Recording bool
	// Actions: the page loads the script of actions.
	Actions bool
}

// policy lets the page load its own style and script, query its own server, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"age": incident.Age, "count": incident.Count, "clock": clock, "doc": docLink,
	"int": func(n int64) int { return int(n) }, "minus": func(a, b int) int { return a - b }, "n": thousands,
	"list": func(words []string) string { return strings.Join(words, ", ") }, "mode": mode, "key": keyLink, "at": atLink,
}).ParseFS(assets, "assets/*.html"))

// thousands returns a number of a template with commas between groups of three digits.
func thousands(number any) string {
	switch n := number.(type) {
	case int:
		return legible.Number(n)
	case int64:
		return legible.Number(int(n))
	case *int:
		return legible.Number(*n)
	}
	return fmt.Sprint(number)
}

// DocBase is the location of the documentation.
const DocBase = "https://github.com/pglatch/pglatch/blob/main/"

func docLink(doc string) string { return DocBase + doc }

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// A Page is the http.Handler of the page.
type Page struct {
	config Config
	scenes scenes[*State]
}

// New returns a Page.
func New(config Config) *Page { return &Page{config: config} }

// ServeHTTP serves what the last element of the path names, so the page can be mounted at any path that ends
// in a slash.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(w, r, p.config.Refuse, p.serve)
}

// files are the assets that pages load, with their types.
var files = map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}

// serve serves an asset, or passes the last element of the path on: "" if the path ends in a slash. The browser revalidates an
// asset each time: a new version must not meet an old script.
func serve(w http.ResponseWriter, r *http.Request, refuse func(http.ResponseWriter, int, string), next func(w http.ResponseWriter, r *http.Request, name string)) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "use GET or HEAD")
		return
	}
	w.Header().Set("Content-Security-Policy", policy)
	name := path.Base("/" + r.URL.Path)
	if r.URL.Path == "" || strings.HasSuffix(r.URL.Path, "/") {
		name = ""
	}
	if files[name] == "" {
		next(w, r, name)
		return
	}
	w.Header().Set("Content-Type", files[name])
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assets, "assets/"+name)
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request, name string) {
	switch name {
	case "live":
		p.live(w, r)
	case "verdicts":
		p.verdicts(w, r)
	case "metrics":
		p.metrics(w, r)
	default:
		if _, ok := views[name]; !ok {
			p.config.Refuse(w, http.StatusNotFound, "the page is at the path that ends in a slash")
			return
		}
		p.show(w, r, name)
	}
}

// show sends a view.
func (p *Page) show(w http.ResponseWriter, r *http.Request, name string) {
	state, err := p.config.Look(r.Context())
	if err != nil {
		w.Header().Set("Retry-After", "1")
		writeHTML(w, http.StatusServiceUnavailable, "down", why(err))
		return
	}
	v := p.view(r.Context(), name, r.URL.Query(), state, nil)
	if v.problem != "" {
		p.config.Refuse(w, v.status, v.problem)
		return
	}
	writeHTML(w, v.status, "page", v)
}

// writeHTML writes what a template makes.
func writeHTML(w http.ResponseWriter, status int, name string, data any) {
	text := render(name, data)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client may have left
}

// verdicts writes them as JSON.
func (p *Page) verdicts(w http.ResponseWriter, r *http.Request) {
	state, err := p.config.Look(r.Context())
	if err != nil {
		p.config.Refuse(w, http.StatusServiceUnavailable, "the database does not answer")
		return
	}
	all := state.Verdicts
	if all == nil {
		all = []incident.Verdict{}
	}
	WriteJSON(w, map[string]any{"verdicts": all, "now": state.Picture.At, "database": state.Picture.Server.Database})
}

// metrics writes the metrics of the database.
func (p *Page) metrics(w http.ResponseWriter, r *http.Request) {
	state, err := p.config.Look(r.Context())
	if err != nil {
		p.config.Refuse(w, http.StatusServiceUnavailable, "the database does not answer")
		return
	}
	var m metrics
	m.add(p.config.Name, state)
	m.write(w)
}

// WriteJSON writes an answer of 200.
func WriteJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: monitor: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have left
}
