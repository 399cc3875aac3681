package web

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/internal/incident"
)

// The bounds of the drawing.
const (
	graphKeys   = 30 // the keys in the most trouble
	graphAround = 6  // processes that wait for one key
)

// A graphView shows which waiters wait for which holders.
type graphView struct {
	SVG        svg
	Cycles     [][]string // sentences
	Lines      []keyRef
	Keys, Left int // drawn, and not
}

// A graphNode is a key, or a process.
type graphNode struct {
	id, text, sub, link, class string
	x, y                       float64 // the center
	out                        []*graphEdge
	in                         []*graphEdge
	part                       int
	rank                       int
}

// A graphEdge leads from a waiter to the key that it waits for, and from a key to its holder.
type graphEdge struct {
	from, to *graphNode
	label    string
	cycle    bool
	waits    bool
}

// A drawing consists of nodes and edges.
type drawing struct {
	nodes map[string]*graphNode
	order []*graphNode
	edges map[[2]string]*graphEdge
	all   []*graphEdge
	loops [][]*graphNode
}

// graph is the view.
func graph(_ context.Context, v *view, _ url.Values) {
	v.Title = "Who waits for whom"
	v.Parts = []string{"graph"}
	d := &drawing{nodes: map[string]*graphNode{}, edges: map[[2]string]*graphEdge{}}
	g := &graphView{}
	for _, k := range v.state.Sorted {
		if len(k.Waiters) == 0 {
			continue
		}
		if g.Keys == graphKeys {
			g.Left++
			continue
		}
		g.Keys++
		d.key(k)
		holder := "nobody"
		if len(k.Holders) > 0 {
			holder = k.Holders[0].Who()
		}
		g.Lines = append(g.Lines, keyRef{fmt.Sprintf("%s: held by %s, waited for by %s", k.Text, holder, strings.Join(whoWaits(k), ", ")), keyLink(k.ID)})
	}
	for _, c := range v.state.Picture.Cycles {
		d.cycle(c)
		g.Cycles = append(g.Cycles, sentences(c))
	}
	if len(d.order) > 0 {
		g.SVG = d.draw()
	}
	v.Graph = g
}

func whoWaits(k *incident.Key) (who []string) {
	counts := map[string]int{}
	for _, w := range k.Waiters {
		if counts[w.Who()]++; counts[w.Who()] == 1 {
			who = append(who, w.Who())
		}
	}
	for i, name := range who {
		if counts[name] > 1 {
			who[i] = fmt.Sprintf("%s (%d)", name, counts[name])
		}
	}
	if len(who) > graphAround {
		who = append(who[:graphAround], fmt.Sprintf("%d more", len(who)-graphAround))
	}
	return who
}

func sentences(c incident.Cycle) (all []string) {
	for _, s := range c.Steps {
		text := s.Who
		if s.Label != "" {
			text += " (" + s.Label + ")"
		}
		if s.Holds != nil {
			text += " holds " + s.Holds.Text + " and"
		}
		all = append(all, fmt.Sprintf("%s has waited %s for %s", text, incident.Age(s.Age), s.Wants.Text))
	}
	return all
}

func (d *drawing) node(id, text, sub, link, class string) *graphNode {
	n := d.nodes[id]
	if n == nil {
		n = &graphNode{id: id, text: text, sub: sub, link: link, class: class, part: -1}
		d.nodes[id] = n
		d.order = append(d.order, n)
	}
	return n
}

func (d *drawing) edge(from, to *graphNode, label string, waits bool) *graphEdge {
	e := d.edges[[2]string{from.id, to.id}]
	if e == nil {
		e = &graphEdge{from: from, to: to, label: label, waits: waits}
		d.edges[[2]string{from.id, to.id}] = e
		d.all = append(d.all, e)
		from.out, to.in = append(from.out, e), append(to.in, e)
	}
	return e
}

func (d *drawing) process(who string, p *incident.Process) *graphNode {
	sub, class := "no process answers for it", "other"
	if p != nil {
		sub, class = p.Service+" on "+p.Host, "process"
		if p.Several { // who has the service
			sub = "on " + p.Host
		}
		if p.Silent {
			sub, class = "silent", "silent"
		}
	}
	return d.node("p/"+who, who, sub, "", class)
}

func (d *drawing) key(k *incident.Key) *graphNode {
	sub := "free"
	if len(k.Holders) > 0 {
		sub = "held for " + incident.Age(k.Since())
	}
	n := d.node("k/"+k.ID, k.Text, sub+" · "+incident.Count(len(k.Waiters), "waits", "wait"), keyLink(k.ID), "key")
	for i, h := range k.Holders {
		if i == graphAround {
			break
		}
		d.edge(n, d.process(h.Who(), h.Process), "", false)
	}
	type waiting struct {
		n       int
		longest *incident.Waiter
	}
	who := map[string]waiting{}
	var names []string
	for _, w := range k.Waiters {
		was, seen := who[w.Who()]
		if !seen {
			names = append(names, w.Who())
		}
		if was.n++; was.longest == nil || w.Age > was.longest.Age {
			was.longest = w
		}
		who[w.Who()] = was
	}
	for i, name := range names {
		if i == graphAround && len(names) > graphAround+1 {
			more := d.node("m/"+k.ID, fmt.Sprintf("%d more", len(names)-i), "processes", "", "other")
			d.edge(more, n, "", true)
			break
		}
		w := who[name]
		label := incident.Age(w.longest.Age)
		if w.n > 1 {
			label = fmt.Sprintf("%d, %s", w.n, label)
		}
		d.edge(d.process(name, w.longest.Process), n, label, true)
	}
	return n
}

// cycle marks the parts of a cycle.
func (d *drawing) cycle(c incident.Cycle) {
	var loop []*graphNode
	for i, s := range c.Steps {
		who, wants := d.process(s.Who, s.Process), d.key(s.Wants)
		d.edge(who, wants, incident.Age(s.Age), true).cycle = true
		next := c.Steps[(i+1)%len(c.Steps)]
		to := d.process(next.Who, next.Process)
		d.edge(wants, to, "", false).cycle = true
		for _, n := range []*graphNode{who, wants} {
			if !slices.Contains(loop, n) {
				loop = append(loop, n)
			}
		}
	}
	d.loops = append(d.loops, loop)
}

// parts groups connected nodes.
func (d *drawing) parts() (all [][]*graphNode) {
	for _, start := range d.order {
		if start.part >= 0 {
			continue
		}
		start.part = len(all)
		part := []*graphNode{start}
		for i := 0; i < len(part); i++ {
			for _, e := range slices.Concat(part[i].out, part[i].in) {
				for _, n := range []*graphNode{e.from, e.to} {
					if n.part < 0 {
						n.part = len(all)
						part = append(part, n)
					}
				}
			}
		}
		all = append(all, part)
	}
	return all
}
