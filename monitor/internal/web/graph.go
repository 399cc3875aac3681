package web

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// The bounds of the drawing.
const (
	graphKeys   = 30 // those in most trouble
	graphAround = 6  // processes that wait for one key
)

// The drawing's measures, in px of its own.
const (
	boxW, boxH = 196, 46
	stepX      = boxW + 84
	stepY      = boxH + 20
	margin     = 16
	gapY       = 34 // between parts
)

// A graphView is who waits for whom.
type graphView struct {
	SVG        svg
	Cycles     [][]string // sentences
	Lines      []frameLine
	Keys, Left int // drawn, and not
}

// A graphNode is a key, or a process.
type graphNode struct {
	id, text, sub, link, class string
	x, y                       float64 // of its middle
	out                        []*graphEdge
	in                         []*graphEdge
	part                       int
	rank                       int
}

// A graphEdge leads from who waits to what it waits for, and from a key to who has it.
type graphEdge struct {
	from, to *graphNode
	label    string
	cycle    bool
	waits    bool
}

// A drawing is made of them.
type drawing struct {
	nodes map[string]*graphNode
	order []*graphNode
	edges map[[2]string]*graphEdge
	all   []*graphEdge
	loops [][]*graphNode
}

// graph is the view.
func graph(v *view, _ *http.Request) {
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
		g.Lines = append(g.Lines, frameLine{fmt.Sprintf("%s: held by %s, waited for by %s", k.Text, holder, strings.Join(whoWaits(k), ", ")), keyLink(k.ID), len(k.Waiters)})
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

// cycle marks what is part of one.
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

// parts puts nodes that hang together into one part.
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

// draw lays the parts out below each other.
func (d *drawing) draw() svg {
	width, y := 0.0, float64(margin)
	for _, part := range d.parts() {
		var loop []*graphNode
		for _, l := range d.loops {
			if l[0].part == part[0].part && len(l) > len(loop) {
				loop = l
			}
		}
		w, h := place(part, loop, y)
		width, y = max(width, w), y+h+gapY
	}
	return d.svg(width+margin, y-gapY+margin)
}

// place gives the nodes of a part their places, from y on, and returns how much room they take. Who waits is at the left of what it
// waits for; a cycle is a circle, to which the others lead.
func place(part, loop []*graphNode, y float64) (width, height float64) {
	for _, n := range part {
		n.rank = -1
	}
	frontier := slices.Clone(loop)
	if len(loop) == 0 {
		for _, n := range part { // who waits for nobody
			if len(n.out) == 0 {
				frontier = append(frontier, n)
			}
		}
	}
	if len(frontier) == 0 {
		frontier = part[:1]
	}
	for _, n := range frontier {
		n.rank = 0
	}
	columns := [][]*graphNode{slices.Clone(frontier)}
	for len(frontier) > 0 { // the shortest way to them
		var next []*graphNode
		for _, n := range frontier {
			for _, e := range slices.Concat(n.in, n.out) {
				for _, o := range []*graphNode{e.from, e.to} {
					if o.rank < 0 {
						o.rank = n.rank + 1
						next = append(next, o)
					}
				}
			}
		}
		if frontier = next; len(next) > 0 {
			columns = append(columns, next)
		}
	}
	radiusX, radiusY := 0.0, 0.0
	if n := len(loop); n > 0 {
		radiusX = max(stepX*0.75, float64(n)*boxW/5)
		radiusY = max(stepY*1.1, float64(n)*stepY/3.6)
	}
	for i, c := range columns {
		if i > 0 || len(loop) == 0 {
			height = max(height, float64(len(c))*stepY)
		}
	}
	height = max(height, 2*radiusY+boxH, boxH)
	middle := y + height/2
	left := float64(len(columns)-1) * stepX
	for rank, c := range columns {
		if rank == 0 && len(loop) > 0 {
			for i, n := range loop {
				angle := 2*math.Pi*float64(i)/float64(len(loop)) + math.Pi // the first at the left
				n.x, n.y = left+margin+boxW/2+radiusX+radiusX*math.Cos(angle), middle+radiusY*math.Sin(angle)
				width = max(width, n.x+boxW/2)
			}
			continue
		}
		for i, n := range c {
			n.x = margin + boxW/2 + left - float64(rank)*stepX
			n.y = middle + (float64(i)-float64(len(c)-1)/2)*stepY
			width = max(width, n.x+boxW/2)
		}
	}
	return width, height
}

func (d *drawing) svg(width, height float64) svg {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="graph" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="group" aria-label="Who waits for whom, drawn; the list below says the same">`, width, height, width, height)
	b.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker>` +
		`<marker id="arrow-cycle" class="cycle" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>`)
	slices.SortStableFunc(d.all, func(a, o *graphEdge) int { return cmp.Compare(b2i(a.cycle), b2i(o.cycle)) })
	for _, e := range d.all {
		d.line(&b, e)
	}
	for _, n := range d.order {
		box(&b, n)
	}
	b.WriteString("</svg>")
	return svg(b.String()) //nolint:gosec // every text in it is escaped
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// line draws an edge between the borders of its boxes.
func (d *drawing) line(b *strings.Builder, e *graphEdge) {
	class, marker := "edge", "arrow"
	if e.waits {
		class += " waits"
	}
	if e.cycle {
		class, marker = class+" cycle", "arrow-cycle"
	}
	x1, y1 := border(e.from, e.to)
	x2, y2 := border(e.to, e.from)
	if d.edges[[2]string{e.to.id, e.from.id}] != nil { // both ways: beside each other
		dx, dy := x2-x1, y2-y1
		l := max(math.Hypot(dx, dy), 1)
		x1, x2, y1, y2 = x1-9*dy/l, x2-9*dy/l, y1+9*dx/l, y2+9*dx/l
	}
	fmt.Fprintf(b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" marker-end="url(#%s)"/>`, class, x1, y1, x2, y2, marker)
	if e.label != "" {
		fmt.Fprintf(b, `<text class="edge-label" x="%.1f" y="%.1f">%s</text>`, (x1+x2)/2, (y1+y2)/2-5, template.HTMLEscapeString(e.label))
	}
}

// border is where the line from n to o leaves n's box.
func border(n, o *graphNode) (x, y float64) {
	dx, dy := o.x-n.x, o.y-n.y
	if dx == 0 && dy == 0 {
		return n.x, n.y
	}
	t := math.Inf(1)
	if dx != 0 {
		t = min(t, (boxW/2+1)/math.Abs(dx))
	}
	if dy != 0 {
		t = min(t, (boxH/2+1)/math.Abs(dy))
	}
	return n.x + t*dx, n.y + t*dy
}

// box draws a node.
func box(b *strings.Builder, n *graphNode) {
	if n.link != "" {
		fmt.Fprintf(b, `<a href="%s">`, template.HTMLEscapeString(n.link))
	}
	rx := 8
	if n.class != "key" {
		rx = boxH / 2
	}
	fmt.Fprintf(b, `<g class="node %s"><title>%s</title><rect x="%.1f" y="%.1f" width="%d" height="%d" rx="%d"/><text class="name" x="%.1f" y="%.1f">%s</text><text class="sub" x="%.1f" y="%.1f">%s</text></g>`,
		n.class, template.HTMLEscapeString(n.text+": "+n.sub), n.x-boxW/2, n.y-boxH/2, boxW, boxH, rx,
		n.x, n.y-3, template.HTMLEscapeString(short(n.text, 24)), n.x, n.y+14, template.HTMLEscapeString(short(n.sub, 30)))
	if n.link != "" {
		b.WriteString("</a>")
	}
}

// short cuts the middle out of a long text.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n/2]) + "…" + string(r[len(r)-n/2+1:])
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
	writeJSON(w, map[string]any{"verdicts": all, "now": state.Picture.At, "database": state.Picture.Server.Database})
}
