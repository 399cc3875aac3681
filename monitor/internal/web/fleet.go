package web

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// listed is how many shards, ticks, turns or leases of one table the page lists.
const listed = 100

// A fleetView is what tables say of shards, ticks, mailboxes and leases.
type fleetView struct {
	Read      bool // false = Config.Fleet is not set, or has not answered yet
	Groups    []groupView
	Jobs      []jobView
	Mailboxes []mailboxView
	Leases    []leaseView
	Left      int // leases that are not listed
	Problems  []string
	More      bool

	NodeHeads, ShardHeads, JobHeads, TurnHeads, LeaseHeads []head
}

// A groupView is a group of shards.
type groupView struct {
	fleet.Group
	Free   int
	Nodes  []nodeView
	Shards []shardView
	Left   int // shards that are not listed
	Pins   int
}

type nodeView struct {
	fleet.Node
	State string
	Hung  bool
}

type shardView struct {
	fleet.Shard
	Link string
}

// A jobView is the ticks of one name.
type jobView struct {
	Name, Tick, State, Node, Took, Next, Every, Missed string
	Trouble                                            string // the severity of its row
	Since                                              age

	took   time.Duration
	missed int
}

// A mailboxView is a mailbox.
type mailboxView struct {
	fleet.Mailbox
	Turns []turnView
	Left  int64
}

type turnView struct {
	fleet.Turn
	Since age
}

// Columns of the tables of what runs beside locks. Their names in an address differ, because one address is for all tables.
var (
	nodeColumns = columns[nodeView]{
		{"Node", false, "node", func(a, b nodeView) int { return cmp.Compare(a.Identity, b.Identity) }},
		{"Owns", true, "owns", func(a, b nodeView) int { return cmp.Compare(b.Owned, a.Owned) }},
		{"Fair part", true, "fair", func(a, b nodeView) int { return cmp.Compare(b.Fair, a.Fair) }},
		{"Weight", true, "weight", func(a, b nodeView) int { return cmp.Compare(b.Weight, a.Weight) }},
		{"State", false, "state", func(a, b nodeView) int { return cmp.Compare(nameless(a.State), nameless(b.State)) }},
	}
	shardColumns = columns[fleet.Shard]{
		{"Shard", false, "shard", func(a, b fleet.Shard) int { return cmp.Compare(a.Name, b.Name) }},
		{"Owner", false, "owner", func(a, b fleet.Shard) int { return cmp.Compare(nameless(a.Owner), nameless(b.Owner)) }},
		{text: "Term"},
		{"Pinned to", false, "pin", func(a, b fleet.Shard) int { return cmp.Compare(nameless(a.Pin), nameless(b.Pin)) }},
	}
	jobColumns = columns[jobView]{
		{"Job", false, "job", func(a, b jobView) int { return cmp.Compare(a.Name, b.Name) }},
		{"Last tick", false, "tick", func(a, b jobView) int { return cmp.Compare(nameless(a.Tick), nameless(b.Tick)) }},
		{text: "State"},
		{"Run by", false, "runner", func(a, b jobView) int { return cmp.Compare(nameless(a.Node), nameless(b.Node)) }},
		{"Took", true, "took", func(a, b jobView) int { return cmp.Compare(b.took, a.took) }},
		{text: "About every"},
		{"Next", false, "next", func(a, b jobView) int { return cmp.Compare(nameless(a.Next), nameless(b.Next)) }},
		{"Missed", true, "missed", func(a, b jobView) int { return cmp.Compare(b.missed, a.missed) }},
	}
	turnColumns = columns[fleet.Turn]{
		{"Entity", false, "entity", func(a, b fleet.Turn) int { return cmp.Compare(a.Entity, b.Entity) }},
		{"For", true, "running", func(a, b fleet.Turn) int { return cmp.Compare(b.Age, a.Age) }},
		{"Node", false, "turn-node", func(a, b fleet.Turn) int { return cmp.Compare(a.Node, b.Node) }},
		{"Attempt", true, "attempt", func(a, b fleet.Turn) int { return cmp.Compare(b.Attempt, a.Attempt) }},
	}
	leaseColumns = columns[leaseView]{
		{"Name", false, "lease", func(a, b leaseView) int { return cmp.Compare(a.Name, b.Name) }},
		{text: "State"},
		{"Holder", false, "holder", func(a, b leaseView) int { return cmp.Compare(nameless(a.Holder), nameless(b.Holder)) }},
		{"Token", true, "token", func(a, b leaseView) int { return cmp.Compare(b.Token, a.Token) }},
		{"Since", false, "since", func(a, b leaseView) int { return cmp.Compare(nameless(a.Acquired), nameless(b.Acquired)) }},
		{"Left", true, "left", func(a, b leaseView) int { return cmp.Compare(b.left, a.left) }},
		{"Waiting", true, "waiting", func(a, b leaseView) int { return cmp.Compare(b.waiting(), a.waiting()) }},
	}
)

func (q *query) readFleet(asked url.Values) (problem string) {
	q.Find = strings.TrimSpace(asked.Get("find"))
	return q.readSort(asked, slices.Concat(nodeColumns.names(), shardColumns.names(), jobColumns.names(), turnColumns.names(), leaseColumns.names())...)
}

// fleetPage shows what runs beside locks.
func fleetPage(_ context.Context, v *view, _ url.Values) {
	v.Title = "Shards, ticks, turns"
	v.Parts = []string{"fleet"}
	v.Fleet = &fleetView{
		NodeHeads: nodeColumns.heads(&v.Query), ShardHeads: shardColumns.heads(&v.Query), JobHeads: jobColumns.heads(&v.Query), TurnHeads: turnColumns.heads(&v.Query),
		LeaseHeads: leaseColumns.heads(&v.Query),
	}
	f := v.state.Fleet
	if f == nil {
		return
	}
	v.Fleet.Read, v.Fleet.Problems, v.Fleet.More = true, f.Problems, f.More
	find := strings.ToLower(v.Query.Find)
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), find) })
	}
	for i := range f.Groups {
		v.Fleet.Groups = append(v.Fleet.Groups, v.group(&f.Groups[i], has))
	}
	for _, j := range f.Jobs {
		if has(j.Name, j.Last.Node) {
			v.Fleet.Jobs = append(v.Fleet.Jobs, v.job(j))
		}
	}
	rank := func(j jobView) int { return slices.Index([]string{"critical", "warning", ""}, j.Trouble) }
	slices.SortStableFunc(v.Fleet.Jobs, func(a, b jobView) int { return cmp.Compare(rank(a), rank(b)) })
	jobColumns.sort(&v.Query, v.Fleet.Jobs)
	for _, b := range f.Mailboxes {
		v.Fleet.Mailboxes = append(v.Fleet.Mailboxes, v.mailbox(b, has))
	}
	for _, l := range f.Leases {
		if has(l.Name, l.Holder) {
			one := leaseView{Name: l.Name, State: strings.ToLower(l.State), Holder: l.Holder, Token: l.Token, Acquired: day(l.Acquired), left: l.Left}
			if l.Left > 0 {
				one.Left = incident.Age(l.Left.Truncate(time.Second))
			}
			v.Fleet.Leases = append(v.Fleet.Leases, one)
		}
	}
	leaseColumns.sort(&v.Query, v.Fleet.Leases)
	v.Fleet.Left = max(len(v.Fleet.Leases)-listed, 0)
	v.Fleet.Leases = v.Fleet.Leases[:len(v.Fleet.Leases)-v.Fleet.Left]
}

func (v *view) group(g *fleet.Group, has func(...string) bool) groupView {
	gv := groupView{Group: *g, Free: g.Shards - g.Owned}
	hung := map[string]bool{}
	for _, n := range g.Nodes {
		nv := nodeView{Node: n, Hung: v.state.Picture.Hung[[2]string{g.Name, n.Identity}] != nil}
		hung[n.Identity] = nv.Hung
		nv.State = strings.Join(states(nv), ", ")
		gv.Nodes = append(gv.Nodes, nv)
	}
	nodeColumns.sort(&v.Query, gv.Nodes)
	links := map[string]string{}
	name, _, _ := strings.Cut(g.Name, "=")
	for _, k := range v.state.Picture.Keys {
		if k.Kind == incident.Shard {
			links[k.Text] = keyLink(k.ID)
		}
	}
	all := slices.Clone(g.List)
	slices.SortStableFunc(all, func(a, b fleet.Shard) int { // those in trouble first
		rank := func(s fleet.Shard) int {
			switch {
			case s.Owner == "":
				return 0
			case hung[s.Owner]:
				return 1
			case s.Pin != "" && s.Pin != s.Owner:
				return 2
			}
			return 3
		}
		return cmp.Compare(rank(a), rank(b))
	})
	shardColumns.sort(&v.Query, all)
	for _, s := range all {
		if s.Pin != "" {
			gv.Pins++
		}
		if !has(s.Name, s.Owner, s.Pin, name) {
			continue
		}
		if len(gv.Shards) == listed {
			gv.Left++
			continue
		}
		gv.Shards = append(gv.Shards, shardView{s, links[name+"/"+s.Name]})
	}
	return gv
}

// states describes the special state of a node.
func states(n nodeView) (all []string) {
	if n.Hung {
		all = append(all, "hung: its process does not answer")
	}
	all = append(all, incident.NodeStates(n.Away, n.Drained, n.Draining)...)
	if n.Refuses {
		all = append(all, "cannot claim some shards")
	}
	return all
}

func (v *view) job(j fleet.Job) jobView {
	jv := jobView{Name: j.Name, Tick: day(j.Last.Tick), State: strings.ToLower(j.Last.State), Node: j.Last.Node}
	switch {
	case j.Last.State == "RUNNING":
		jv.Since = v.age("t/"+j.Name, v.At.Sub(j.Last.Began), true)
	case !j.Last.Ended.IsZero():
		jv.took = j.Last.Ended.Sub(j.Last.Began)
		jv.Took = incident.Age(jv.took)
	}
	if j.Every > 0 {
		jv.Every, jv.Next = incident.Age(j.Every), day(j.Next)
	}
	switch n := len(j.Missed); {
	case n > 0:
		jv.missed = n
		jv.Missed = fmt.Sprintf("%d, the last %s", n, day(j.Missed[0]))
		jv.Trouble = string(incident.Warning)
	case j.Last.State == "FAILED":
		jv.Trouble = string(incident.Warning)
	}
	return jv
}

func (v *view) mailbox(b fleet.Mailbox, has func(...string) bool) mailboxView {
	mv := mailboxView{Mailbox: b, Left: b.Running - int64(len(b.Turns))}
	turns := slices.Clone(b.Turns)
	turnColumns.sort(&v.Query, turns)
	for _, t := range turns {
		if has(t.Entity, t.Node, b.Name) {
			mv.Turns = append(mv.Turns, turnView{t, v.age("u/"+b.Name+"/"+t.Entity, t.Age, true)})
		}
	}
	return mv
}

// day formats a time with its day, if it is known.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
