package actions

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// mostTargets is how many keys a state offers.
const mostTargets = 500

// A state is what the page's script needs to offer actions.
type state struct {
	Person  personState   `json:"person"`
	Actions []actionState `json:"actions"`
	Keys    []keyState    `json:"keys"`
	Groups  []groupState  `json:"groups"`
	// Mailboxes and Leases are those in the database's tables, as the page last read them.
	Mailboxes []mailboxState `json:"mailboxes"`
	Leases    []string       `json:"leases"` // that are held
	Audit     []Entry        `json:"audit"`
	Problem   string         `json:"problem,omitempty"` // why there are no keys
}

type personState struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Certified bool   `json:"certified,omitempty"` // by a certificate: nobody can sign out
}

type actionState struct {
	Name    string   `json:"name"`
	Text    string   `json:"text"`
	Role    string   `json:"role"`
	Allowed bool     `json:"allowed"`
	Fields  []string `json:"fields"`
}

// A keyState is a key that is held.
type keyState struct {
	Key        string         `json:"key"`
	Kind       string         `json:"kind"`
	Sessions   []sessionState `json:"sessions"`
	Candidates []string       `json:"candidates,omitempty"` // of its election: those that answer and do not lead
}

type sessionState struct {
	Session uint32 `json:"session"`
	Who     string `json:"who"`
}

// A groupState is a group of shards, as far as processes answer.
type groupState struct {
	Group  string   `json:"group"`
	Nodes  []string `json:"nodes"`
	Shards []string `json:"shards,omitempty"`
}

// A mailboxState is a mailbox, with the entities whose turns run.
type mailboxState struct {
	Mailbox  string   `json:"mailbox"`
	Entities []string `json:"entities"`
}

func (s *Server) state(d *Database, w http.ResponseWriter, r *http.Request, who *Person) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "use GET")
		return
	}
	all := state{
		Person:  personState{program.Printable(who.Name), who.Role.String(), who.certified},
		Actions: []actionState{}, Keys: []keyState{}, Groups: []groupState{}, Mailboxes: []mailboxState{}, Leases: []string{}, Audit: s.audit.newest(),
	}
	for _, k := range d.kinds() {
		all.Actions = append(all.Actions, actionState{k.name, k.text, k.need.String(), who.Role >= k.need, k.fields})
	}
	v, err := d.Snapshot(r.Context())
	if err != nil {
		all.Problem = "the database does not answer"
		writeJSON(w, http.StatusOK, all)
		return
	}
	candidates := map[string][]string{}
	for _, e := range elections(v.Answers) {
		if e.Node != e.Leader {
			candidates[e.Tags[0].String()] = append(candidates[e.Tags[0].String()], e.Node)
		}
	}
	rows := overview.Of(v)
	overview.Sort(rows, overview.ByTrouble)
	for _, row := range rows {
		if len(row.Holders) == 0 {
			continue
		}
		if len(all.Keys) == mostTargets {
			break
		}
		all.Keys = append(all.Keys, keyOf(row, candidates))
	}
	all.Groups = groupsOf(v.Answers)
	if v.Fleet != nil {
		d.addTables(&all, v.Fleet)
	}
	writeJSON(w, http.StatusOK, all)
}

func keyOf(row *overview.Row, candidates map[string][]string) keyState {
	k := keyState{Key: row.Key, Kind: string(row.Kind), Sessions: []sessionState{}, Candidates: candidates[row.Tag.String()]}
	if incident.Hidden(row.Key) || row.Key != program.Printable(row.Key) {
		k.Key = row.Tag.String()
	}
	slices.Sort(k.Candidates)
	for _, h := range row.Holders[:min(10, len(row.Holders))] {
		if h.PID != 0 {
			k.Sessions = append(k.Sessions, sessionState{h.PID, program.Printable(h.Who())})
		}
	}
	return k
}

// groupsOf returns the groups of shards that processes say they take part in.
func groupsOf(a introspect.Answers) []groupState {
	all := []groupState{}
	of := func(name string) *groupState {
		i := slices.IndexFunc(all, func(g groupState) bool { return g.Group == name })
		if i < 0 {
			i, all = len(all), append(all, groupState{Group: name, Nodes: []string{}})
		}
		return &all[i]
	}
	for i := range a.Answers {
		for _, g := range a.Answers[i].Groups {
			one := of(g.Name)
			one.Nodes = append(one.Nodes, g.Node)
			for _, l := range a.Answers[i].Locks {
				if l.Group == g.Name && len(one.Shards) < mostTargets {
					_, shard, _ := strings.Cut(l.Key, "/")
					one.Shards = append(one.Shards, shard)
				}
			}
		}
	}
	for i := range all {
		slices.Sort(all[i].Nodes)
		slices.Sort(all[i].Shards)
	}
	return all
}

// addTables adds what the database's tables have. The leases of a lock server are not among them.
func (d *Database) addTables(to *state, f *fleet.Fleet) {
	for i := range f.Groups {
		g := &f.Groups[i]
		at := slices.IndexFunc(to.Groups, func(o groupState) bool { return o.Group == g.Name })
		if at < 0 {
			at, to.Groups = len(to.Groups), append(to.Groups, groupState{Group: g.Name})
		}
		one := &to.Groups[at]
		for _, n := range g.Nodes {
			one.Nodes = append(one.Nodes, n.Identity)
		}
		for _, s := range g.List {
			one.Shards = append(one.Shards, s.Name)
		}
		one.Nodes, one.Shards = offered(one.Nodes), offered(one.Shards)
	}
	for i := range f.Mailboxes {
		m := mailboxState{Mailbox: f.Mailboxes[i].Name}
		for _, t := range f.Mailboxes[i].Turns {
			m.Entities = append(m.Entities, t.Entity)
		}
		m.Entities = offered(m.Entities)
		to.Mailboxes = append(to.Mailboxes, m)
	}
	if d.Leases != nil {
		return
	}
	for _, l := range f.Leases {
		if l.State == lease.Held.String() {
			to.Leases = append(to.Leases, l.Name)
		}
	}
	to.Leases = offered(to.Leases)
}

// offered returns what a field offers, each text once.
func offered(all []string) []string {
	slices.Sort(all)
	all = slices.Compact(all)
	return append([]string{}, all[:min(len(all), mostTargets)]...)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: actions: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have left
}
