package web

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// The dimensions of the drawing, in its own px.
const (
	boxW, boxH = 196, 46
	stepX      = boxW + 84
	stepY      = boxH + 20
	margin     = 16
	gapY       = 34 // between parts
)

// draw arranges the parts one below the other.
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

// place positions the nodes of a part, from y on, and returns their size. A waiter is to the left of what it waits for.
// A cycle is drawn as a circle, and the other nodes lead to it.
func place(part, loop []*graphNode, y float64) (width, height float64) {
	for _, n := range part {
		n.rank = -1
	}
	frontier := slices.Clone(loop)
	if len(loop) == 0 {
		for _, n := range part { // the nodes that wait for nothing
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
	for len(frontier) > 0 { // the shortest path to them
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
	if d.edges[[2]string{e.to.id, e.from.id}] != nil { // both directions: beside each other
		dx, dy := x2-x1, y2-y1
		l := max(math.Hypot(dx, dy), 1)
		x1, x2, y1, y2 = x1-9*dy/l, x2-9*dy/l, y1+9*dx/l, y2+9*dx/l
	}
	fmt.Fprintf(b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" marker-end="url(#%s)"/>`, class, x1, y1, x2, y2, marker)
	if e.label != "" {
		fmt.Fprintf(b, `<text class="edge-label" x="%.1f" y="%.1f">%s</text>`, (x1+x2)/2, (y1+y2)/2-5, template.HTMLEscapeString(e.label))
	}
}

// border returns where the line from n to o leaves n's box.
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

// short removes the middle of a long text.
func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n/2]) + "…" + string(r[len(r)-n/2+1:])
}
