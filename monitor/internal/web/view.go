package web

import (
	"bytes"
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
)

// perPage is the number of rows on one page of the table.
const perPage = 100

// A view is the data that templates show of a State.
type view struct {
	Name, Title string
	Now         int64
	At          time.Time
	Database    string
	Label, Home string // of a Site
	Version     string
	Nav         []link
	Parts       []string // beside status and, if Rows is not nil, the table
	Status      status
	Verdicts    []card
	Heads       []head
	Rows        []row // nil = the view has no table
	Query       query
	All, Found  int
	First, Last int
	Prev, More  string
	Key         *keyView
	Graph       *graphView
	Elections   []electionView
	Leases      *leasesView
	Fleet       *fleetView
	Past        *pastView
	Hour        *hourView
	Frame       *frameView
	Incident    *incidentView
	Recording   bool
	Live        string // the address of its events

	status  int
	problem string
	state   *State
	starts  starts
	page    *Page
}

// A link is one of the navigation.
type link struct {
	Href, Text string
	Here       bool
	Key        string
}

// An age counts in the browser.
type age struct {
	Since int64 // ms since 1970
	Text  string
	About bool // it is not exactly known
}

// A status is the line of key figures.
type status struct {
	Held, Waiting, Processes, Silent int
	Locks, Connections               string
	Unanswered                       string
	Partial                          bool
	Critical, Warning                int
	Unread                           []string // why tables were not read
}

// A card is a verdict.
type card struct {
	incident.Verdict
	ID           string
	Link         string
	Permalink    string
	Links        []keyRef // of its keys, if there are several
	MoreKeys     int      // that have no link
	Consequences []string
	Says         []saying // the advice
	Database     string   // of a Site
	Age          age
}

// A keyRef is a link to a key.
type keyRef struct{ Text, Link string }

// in makes a card one of a list of databases.
func (c *card) in(database string) {
	c.Database, c.ID = database, c.ID+"-"+database
	if c.Link != "" {
		c.Link = database + "/" + c.Link
	}
	c.Permalink = database + "/" + c.Permalink
	for i := range c.Links {
		c.Links[i].Link = database + "/" + c.Links[i].Link
	}
}

// A query is the query of a request.
type query struct {
	Find, Older string
	Sort        string // "" = those in trouble first
	Page        int
	older       time.Duration
}

// A viewKind is a view of one name. Both functions get the parameters of a request, and nothing else of it: viewers share
// what is rendered.
type viewKind struct {
	fill func(ctx context.Context, v *view, asked url.Values)
	read func(q *query, asked url.Values) (problem string) // reads the query; nil = the view has none
}

var views = map[string]viewKind{
	"": {now, (*query).read}, "key": {fill: key}, "graph": {fill: graph}, "elections": {elections, (*query).readLeases}, "happened": {fill: happened}, "at": {fill: moment},
	"fleet": {fleetPage, (*query).readFleet}, "incident": {fill: incidentPage},
}

// query reads the query of a view. A view with a problem is not shown.
func (k viewKind) query(asked url.Values) (q query, problem string) {
	if k.read != nil {
		problem = k.read(&q, asked)
	}
	return q, problem
}

var navigation = []link{{Href: "./", Text: "Now", Key: "1"}, {Href: "graph", Text: "Graph", Key: "2"}, {Href: "elections", Text: "Elections", Key: "3"}, {Href: "happened", Text: "What happened", Key: "4"}, {Href: "fleet", Text: "Shards, ticks, turns", Key: "5"}}

// view builds a view.
func (p *Page) view(ctx context.Context, name string, asked url.Values, state *State, s starts) *view {
	pic := state.Picture
	v := &view{
		Name: name, status: http.StatusOK, state: state, starts: s, page: p, At: pic.At, Now: pic.At.UnixMilli(), Database: pic.Server.Database,
		Version: pic.Server.Version, Recording: p.config.Recording, Label: p.config.Label, Home: p.config.Home,
	}
	for _, l := range navigation {
		l.Here = strings.Trim(l.Href, "./") == name
		v.Nav = append(v.Nav, l)
	}
	v.Live = "live?" + address(name, asked)
	v.figures()
	for i := range state.Verdicts {
		v.Verdicts = append(v.Verdicts, v.card(&state.Verdicts[i]))
	}
	kind := views[name]
	if v.Query, v.problem = kind.query(asked); v.problem != "" {
		v.status = http.StatusBadRequest
		return v
	}
	kind.fill(ctx, v, asked)
	return v
}

// address returns the parameters of the live view.
func address(name string, asked url.Values) string {
	asked = maps.Clone(asked)
	asked.Set("view", name)
	return asked.Encode()
}

func (v *view) parts() []string { return append([]string{"status", "database"}, v.Parts...) }

func (v *view) part(name string) string { return render("part-"+name, v) }

// frame renders the view for viewers of its live view.
func (v *view) frame() *frame {
	f := &frame{now: v.Now, parts: map[string]string{}}
	for _, name := range v.parts() {
		f.parts[name] = v.part(name)
	}
	if v.Rows != nil {
		f.rows, f.order = make(map[string]string, len(v.Rows)), make([]string, len(v.Rows))
		for i, row := range v.Rows {
			f.rows[row.id()], f.order[i] = render("row", row), row.id()
		}
	}
	return f
}

func render(name string, data any) string {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic("BUG: monitor: " + err.Error())
	}
	return b.String()
}

// age returns an age of d, known to the client as id.
func (v *view) age(id string, d time.Duration, exact bool) age {
	since := v.starts.steady(id, v.At.Add(-d).UnixMilli())
	text := incident.Age(d)
	if v.starts != nil { // the browser counts: the text must not change the row
		text = incident.Age(time.Duration(0))
	}
	return age{Since: since, Text: text, About: !exact}
}

func (v *view) figures() {
	pic := v.state.Picture
	s := &v.Status
	for _, k := range pic.Keys {
		s.Held += min(len(k.Holders), 1)
		s.Waiting += len(k.Waiters)
	}
	for _, p := range pic.Processes {
		if s.Processes++; p.Silent {
			s.Silent++
		}
	}
	s.Locks, s.Connections = percent(pic.Server.Locks, pic.Server.LockRoom), percent(pic.Server.Connections, pic.Server.ConnLimit)
	s.Unanswered, s.Partial = pic.Server.Unanswered, pic.Server.Partial
	if v.state.Fleet != nil {
		s.Unread = v.state.Fleet.Problems
	}
	for i := range v.state.Verdicts {
		switch v.state.Verdicts[i].Severity {
		case incident.Critical:
			s.Critical++
		case incident.Warning:
			s.Warning++
		}
	}
}

func percent(part, whole int) string {
	if whole <= 0 {
		return "?"
	}
	return strconv.Itoa((100*part+whole/2)/whole) + " %"
}

func (v *view) card(verdict *incident.Verdict) card {
	c := card{Verdict: *verdict, ID: cardID(verdict), Says: advice(verdict.Advice)}
	c.Permalink = permalink(c.ID, verdict)
	if ids := verdict.Keys(); len(ids) > 1 || verdict.KeyID == "" {
		c.Links = v.refs(ids)
		c.MoreKeys = max(0, len(c.Links)-keysLinked)
		c.Links = c.Links[:len(c.Links)-c.MoreKeys]
	} else if verdict.KeyID != "" && verdict.Key != "" {
		c.Link = keyLink(verdict.KeyID)
	}
	for i := range verdict.Consequences {
		c.Consequences = append(c.Consequences, verdict.Consequences[i].Text)
	}
	c.Age = v.age(c.ID, v.At.Sub(verdict.Since), true)
	return c
}

// keysLinked is how many keys a card links.
const keysLinked = 5

// refs returns links to the keys that are there, in their order.
func (v *view) refs(ids []string) (all []keyRef) {
	for _, k := range v.state.Picture.Keys {
		if slices.Contains(ids, k.ID) {
			all = append(all, keyRef{k.Text, keyLink(k.ID)})
		}
	}
	return all
}

func keyLink(id string) string { return "key?id=" + url.QueryEscape(id) }

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// now is the view of the table of keys.
func now(_ context.Context, v *view, _ url.Values) {
	v.Title = "Now"
	v.Parts = []string{"verdicts", "heads", "paging", "hour"}
	v.Hour = v.hour()
	var found []*incident.Key
	for _, k := range v.state.Sorted {
		if v.Query.matches(k) {
			found = append(found, k)
		}
	}
	keyColumns.sort(&v.Query, found)
	v.Heads = v.Query.keyHeads()
	v.All, v.Found = len(v.state.Sorted), len(found)
	last := max(0, (len(found)-1)/perPage)
	page := min(v.Query.Page, last)
	part := found[min(page*perPage, len(found)):min((page+1)*perPage, len(found))]
	v.First, v.Last = page*perPage+min(1, len(part)), page*perPage+len(part)
	link := func(page int) string { return v.Query.link(map[string]string{"page": strconv.Itoa(page)}) }
	if page > 0 {
		v.Prev = link(page - 1)
	}
	if page < last {
		v.More = link(page + 1)
	}
	badges := v.badges()
	v.Rows = make([]row, len(part))
	for i, k := range part {
		v.Rows[i] = v.row(k, badges[k.ID])
	}
}

func (v *view) badges() map[string][]badge {
	all := map[string][]badge{}
	for i := range v.state.Verdicts {
		d := &v.state.Verdicts[i]
		for _, id := range d.Keys() {
			if b := (badge{string(d.Severity), strings.ReplaceAll(d.Name, "-", " ")}); !slices.Contains(all[id], b) {
				all[id] = append(all[id], b)
			}
		}
	}
	return all
}

// read parses a query, and returns what is wrong with it.
func (q *query) read(values url.Values) string {
	q.Find, q.Older = strings.TrimSpace(values.Get("find")), strings.TrimSpace(values.Get("older"))
	if q.Older != "" {
		text := q.Older
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			text += "s"
		}
		d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
		if err != nil || d < 0 {
			return "older=" + strconv.Quote(q.Older) + ": write it as 30s, 5m or 1h30m"
		}
		q.older = d
	}
	if problem := q.readSort(values, keyColumns.names()...); problem != "" {
		return problem
	}
	q.Page, _ = strconv.Atoi(values.Get("page"))
	q.Page = max(q.Page, 0)
	return ""
}

// matches reports whether the query selects a key.
func (q *query) matches(k *incident.Key) bool {
	if q.older > 0 && k.Since() < q.older && k.Longest() < q.older {
		return false
	}
	if q.Find == "" {
		return true
	}
	find := strings.ToLower(q.Find)
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), find) }
	return has(k.Text) ||
		slices.ContainsFunc(k.Holders, func(h *incident.Holder) bool {
			return has(h.Who()) || slices.ContainsFunc(h.Labels, has) || q.pid(h.PID)
		}) ||
		slices.ContainsFunc(k.Waiters, func(w *incident.Waiter) bool { return has(w.Who()) || has(w.Label) || q.pid(w.PID) })
}

func (q *query) pid(pid uint32) bool { return pid != 0 && strconv.Itoa(int(pid)) == q.Find }

// svg is markup that this package made, of escaped text.
type svg = template.HTML
