package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/monitor/internal/incident"
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
	Problems  []string
	More      bool
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
}

// A mailboxView is a mailbox.
type mailboxView struct {
	fleet.Mailbox
	Oldest string
	Nodes  string
	Turns  []turnView
	Left   int64
}

type turnView struct {
	Entity, Node string
	Attempt      int
	Since        age
}

// shardOrders sort shards by a column.
var shardOrders = map[string]func(a, b fleet.Shard) int{
	"shard": func(a, b fleet.Shard) int { return cmp.Compare(a.Name, b.Name) },
	"owner": func(a, b fleet.Shard) int { return cmp.Compare(nameless(a.Owner), nameless(b.Owner)) },
	"pin":   func(a, b fleet.Shard) int { return cmp.Compare(nameless(a.Pin), nameless(b.Pin)) },
}

// fleetPage shows what runs beside locks.
func fleetPage(_ context.Context, v *view, asked url.Values) {
	v.Title = "Shards, ticks, turns"
	v.Parts = []string{"fleet"}
	v.Query.Find, v.Query.Sort = strings.TrimSpace(asked.Get("find")), asked.Get("sort")
	if v.Query.Sort != "" && shardOrders[v.Query.Sort] == nil {
		v.problem, v.status = "sort="+strconv.Quote(v.Query.Sort)+": use shard, owner or pin", http.StatusBadRequest
		return
	}
	v.Heads = v.Query.heads(column{"Shard", "shard", false}, column{"Owner", "owner", false}, column{"Term", "", false}, column{"Pinned to", "pin", false})
	v.Fleet = &fleetView{}
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
	for _, b := range f.Mailboxes {
		v.Fleet.Mailboxes = append(v.Fleet.Mailboxes, v.mailbox(b, has))
	}
	for _, l := range f.Leases {
		if has(l.Name, l.Holder) && len(v.Fleet.Leases) < listed {
			one := leaseView{Name: l.Name, State: strings.ToLower(l.State), Holder: l.Holder, Token: l.Token, Acquired: day(l.Acquired)}
			if l.Left > 0 {
				one.Left = incident.Age(l.Left.Truncate(time.Second))
			}
			v.Fleet.Leases = append(v.Fleet.Leases, one)
		}
	}
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
	if order := shardOrders[v.Query.Sort]; order != nil {
		slices.SortStableFunc(all, order)
	}
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
	for _, s := range []struct {
		is   bool
		text string
	}{
		{n.Hung, "hung: its process does not answer"},
		{n.Away, "away"},
		{n.Drained && n.Away, "drained"},
		{!n.Away && (n.Drained || n.Draining), "draining"},
		{n.Refuses, "cannot claim some shards"},
	} {
		if s.is {
			all = append(all, s.text)
		}
	}
	return all
}

func (v *view) job(j fleet.Job) jobView {
	jv := jobView{Name: j.Name, Tick: day(j.Last.Tick), State: strings.ToLower(j.Last.State), Node: j.Last.Node}
	switch {
	case j.Last.State == "RUNNING":
		jv.Since = v.age("t/"+j.Name, v.At.Sub(j.Last.Began), true)
	case !j.Last.Ended.IsZero():
		jv.Took = incident.Age(j.Last.Ended.Sub(j.Last.Began))
	}
	if j.Every > 0 {
		jv.Every, jv.Next = incident.Age(j.Every), day(j.Next)
	}
	switch n := len(j.Missed); {
	case n > 0:
		jv.Missed = fmt.Sprintf("%d, the last %s", n, day(j.Missed[0]))
		jv.Trouble = string(incident.Warning)
	case j.Last.State == "FAILED":
		jv.Trouble = string(incident.Warning)
	}
	return jv
}

func (v *view) mailbox(b fleet.Mailbox, has func(...string) bool) mailboxView {
	mv := mailboxView{Mailbox: b, Nodes: strings.Join(b.Nodes, ", ")}
	if b.Oldest > 0 {
		mv.Oldest = incident.Age(b.Oldest)
	}
	for _, t := range b.Turns {
		if has(t.Entity, t.Node, b.Name) {
			mv.Turns = append(mv.Turns, turnView{t.Entity, t.Node, t.Attempt, v.age("u/"+b.Name+"/"+t.Entity, t.Age, true)})
		}
	}
	mv.Left = b.Running - int64(len(b.Turns))
	return mv
}

// day formats a time with its day, if it is known.
func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
