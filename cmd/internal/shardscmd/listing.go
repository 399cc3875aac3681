package shardscmd

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/leader/shards"
)

// A listing is the output of ls.
type listing struct {
	Group string `json:"group"`
	// Certain: the shards are exactly those in the common list of all nodes.
	Certain bool    `json:"certain"`
	Total   int     `json:"total"` // shards, including those that are not shown
	Owned   int     `json:"owned"`
	Unowned int     `json:"unowned"`
	Nodes   []node  `json:"nodes"`
	Shards  []shard `json:"shards"`
	// Pins are all pins, also of shards in no node's list.
	Pins map[string]string `json:"pins"`

	short bool // without the shards
}

type node struct {
	Identity string `json:"identity"`
	Weight   int    `json:"weight"`
	Owned    int    `json:"owned"`
	Fair     int    `json:"fair"`
	Draining bool   `json:"draining"`
	Drained  bool   `json:"drained"` // by an operator
	Away     bool   `json:"away"`
	Refuses  string `json:"refuses,omitempty"` // hashes of shards that it cannot claim now; "*" = all
}

type shard struct {
	Name         string `json:"shard"`
	Owner        string `json:"owner,omitempty"`
	Term         string `json:"term,omitempty"`
	FencingToken uint64 `json:"fencing_token,omitempty"`
	PinnedTo     string `json:"pinned_to,omitempty"`
}

func newListing(name string, g shards.Group, f *filter) listing {
	owned := g.Owned()
	l := listing{
		Group: name, Certain: g.Certain, Total: len(g.Shards), Owned: owned, Unowned: len(g.Shards) - owned,
		Nodes: []node{}, Shards: []shard{}, Pins: g.Pins, short: f.nodes,
	}
	if l.Pins == nil {
		l.Pins = map[string]string{}
	}
	for _, m := range g.Members {
		l.Nodes = append(l.Nodes, node{m.Identity, m.Weight, m.Owned, m.Fair, m.Draining, m.Drained, m.Away, m.Refuses})
	}
	for _, s := range g.Shards {
		if f.nodes || !f.keeps(s) {
			continue
		}
		one := shard{Name: s.Name, Owner: s.Owner, PinnedTo: s.Pin, FencingToken: s.Term.Uint64()}
		if !s.Term.IsZero() {
			one.Term = s.Term.String()
		}
		l.Shards = append(l.Shards, one)
	}
	return l
}

func (l listing) output(app *program.App) program.Output {
	lines := program.Lines(l.Shards)
	if l.short {
		lines = program.Lines(l.Nodes)
	}
	return program.Output{Document: l, Lines: lines, Text: func(w *bytes.Buffer) {
		l.writeNodes(app, w)
		if !l.short {
			fmt.Fprintln(w)
			l.writeShards(app, w)
		}
	}}
}

func (l listing) writeNodes(app *program.App, w *bytes.Buffer) {
	t := app.NewTable("NODE", "WEIGHT", "OWNED", "FAIR", "STATE")
	for _, n := range l.Nodes {
		state, color, weight, fair := n.state(), "", "-", "-"
		if !n.Away {
			weight, fair = strconv.Itoa(n.Weight), strconv.Itoa(n.Fair)
		}
		if state != "" {
			color = program.Yellow
		}
		t.Add(color, n.Identity, weight, strconv.Itoa(n.Owned), fair, cmp.Or(state, "-"))
	}
	t.WriteTo(w)
}

// state describes the special state of a node.
func (n node) state() string {
	all := incident.NodeStates(n.Away, n.Drained, n.Draining)
	switch n.Refuses {
	case "":
	case "*":
		all = append(all, "can claim nothing")
	default:
		all = append(all, fmt.Sprintf("refuses %d", 1+strings.Count(n.Refuses, ",")))
	}
	return strings.Join(all, ", ")
}

func (l listing) writeShards(app *program.App, w *bytes.Buffer) {
	t := app.NewTable("SHARD", "OWNER", "TERM", "PINNED TO")
	listed := map[string]bool{}
	for _, s := range l.Shards {
		listed[s.Name] = true
		color := ""
		if s.Owner == "" {
			color = program.Red
		}
		t.Add(color, s.Name, cmp.Or(s.Owner, "nobody"), cmp.Or(s.Term, "-"), cmp.Or(s.PinnedTo, "-"))
	}
	t.WriteTo(w)
	if len(l.Shards) < l.Total {
		fmt.Fprintf(w, "%d of %d shards are shown\n", len(l.Shards), l.Total)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.Pins)) {
		if !listed[name] {
			fmt.Fprintf(w, "%s is pinned to %s, and no shard that is known\n", program.Printable(name), program.Printable(l.Pins[name]))
		}
	}
}
