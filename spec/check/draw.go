package check

import (
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// The window and the measures of a picture.
const (
	drawnBefore = 160
	drawnAfter  = 40
	laneHeight  = 64
	stepWidth   = 22
	laneLeft    = 260
	laneTop     = 120
)

// A picture is the part of a run around its illegal event, or its end.
type picture struct {
	run     []trace.Event
	from    int // index in the run
	shown   []trace.Event
	lanes   []string
	illegal int // index in the run; -1 = none
	out     strings.Builder
}

// Draw writes a page that shows a run: a lane for each process, the events in their order, and the illegal one marked.
// refused is the error of the run's check, or nil. The page loads nothing from elsewhere.
func Draw(w io.Writer, title string, run []trace.Event, refused error) error {
	p := picture{run: run, illegal: -1}
	reason := "The run is legal."
	if r, ok := errors.AsType[*RefusalError](refused); ok {
		p.illegal = r.Index
		reason = r.Error()
	} else if refused != nil {
		reason = refused.Error()
	}
	p.choose()
	width := laneLeft + stepWidth*(len(p.shown)+4)
	height := laneTop + laneHeight*len(p.lanes) + 40
	p.print(`<!doctype html><html lang="en"><meta charset="utf-8"><title>%s</title>`, html.EscapeString(title))
	p.print(`<style>body{font:14px sans-serif;margin:16px}svg text{font:11px sans-serif}td,th{padding:2px 10px;text-align:left;font:12px monospace}.bad{background:#fcc}</style>`)
	p.print(`<h1>%s</h1><p>%s</p><p>%d events, of which %d are shown. Events are in the order of the shared clock, at equal distances; the times are in milliseconds after the first event of the run. Point at an event to read it.</p>`,
		html.EscapeString(title), html.EscapeString(reason), len(run), len(p.shown))
	p.print(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img">`, width, height)
	p.drawLanes(width)
	p.drawTenures()
	for i := range p.shown {
		p.drawEvent(i)
	}
	p.print(`</svg>`)
	p.drawTable()
	p.print("</html>\n")
	_, err := io.WriteString(w, p.out.String())
	return err
}

func (p *picture) print(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// choose selects the events around the illegal one, with the earlier events of the same key first.
func (p *picture) choose() {
	center := p.illegal
	if center < 0 {
		center = len(p.run) - 1
	}
	p.from = max(0, center-drawnBefore)
	p.shown = p.run[p.from:min(len(p.run), center+drawnAfter+1)]
	for _, e := range p.shown {
		if !slices.Contains(p.lanes, e.Process) {
			p.lanes = append(p.lanes, e.Process)
		}
	}
	slices.Sort(p.lanes)
}

func (p *picture) x(i int) int { return laneLeft + stepWidth*(i+1) }

func (p *picture) y(process string) int {
	return laneTop + laneHeight*slices.Index(p.lanes, process) + laneHeight/2
}

func (p *picture) drawLanes(width int) {
	for i, name := range p.lanes {
		fill := "#f6f6f6"
		if i%2 == 1 {
			fill = "#ffffff"
		}
		p.print(`<rect x="0" y="%d" width="%d" height="%d" fill="%s"/>`, laneTop+laneHeight*i, width, laneHeight, fill)
		p.print(`<text x="8" y="%d">%s</text>`, p.y(name), html.EscapeString(name))
	}
	for i, e := range p.shown {
		if i%5 == 0 {
			p.print(`<text x="%d" y="%d" fill="#666">%.1f</text>`, p.x(i), laneTop-8, p.ms(e))
		}
	}
}

func (p *picture) ms(e trace.Event) float64 {
	return float64(e.Boot-p.run[0].Boot) / float64(time.Millisecond)
}

// drawTenures draws a bar for each time in which a process had a lock, a lease, a shard or a leadership.
func (p *picture) drawTenures() {
	type open struct{ process, key, who string }
	began := make(map[open]int)
	bar := func(at open, from, to int) {
		p.print(`<rect x="%d" y="%d" width="%d" height="12" fill="#bcd7f5" stroke="#5588bb"><title>%s has %s</title></rect>`,
			p.x(from), p.y(at.process)-22, max(4, stepWidth*(to-from)), html.EscapeString(at.process), html.EscapeString(at.key))
	}
	for i, e := range p.shown {
		at := open{e.Process, e.Key, e.Who}
		switch e.Kind {
		case trace.Acquired, trace.Recovered:
			began[at] = i
		case trace.Released, trace.Lost:
			bar(at, began[at], i) // 0: it began before the first event that is shown
			delete(began, at)
		}
	}
	for at, from := range began {
		bar(at, from, len(p.shown))
	}
}

var eventColors = map[trace.Kind]string{
	trace.Acquired: "#1a7f37", trace.Recovered: "#1a7f37", trace.Released: "#57606a", trace.Release: "#57606a", trace.Lost: "#bc4c00",
	trace.Commit: "#0969da", trace.Fault: "#8250df", trace.Error: "#bc4c00", trace.LeaseAcquire: "#1a7f37", trace.LeaseRenew: "#0969da", trace.LeaseRelease: "#57606a",
}

func (p *picture) drawEvent(i int) {
	e := p.shown[i]
	x, y := p.x(i), p.y(e.Process)
	color := eventColors[e.Kind]
	if color == "" {
		color = "#24292f"
	}
	if e.Asked != 0 { // a call: from when it began
		from := slices.IndexFunc(p.shown, func(o trace.Event) bool { return o.Boot >= e.Asked })
		p.print(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s"/>`, p.x(min(from, i)), y+6, x, y+6, color)
	}
	radius := 4
	if p.from+i == p.illegal {
		radius = 8
		p.print(`<line x1="%d" y1="20" x2="%d" y2="%d" stroke="#d1242f" stroke-width="2"/>`, x, x, laneTop+laneHeight*len(p.lanes))
		p.print(`<text x="%d" y="16" fill="#d1242f" font-weight="bold">illegal: %s of %s</text>`, max(8, x-200), html.EscapeString(string(e.Kind)), html.EscapeString(e.Process))
		color = "#d1242f"
	}
	p.print(`<circle cx="%d" cy="%d" r="%d" fill="%s"><title>%s</title></circle>`, x, y, radius, color, html.EscapeString(p.describe(i)))
	p.print(`<text transform="translate(%d,%d) rotate(35)" fill="%s">%s</text>`, x, y+14, color, html.EscapeString(labelOf(e)))
}

func labelOf(e trace.Event) string {
	switch e.Kind {
	case trace.State:
		return "→ " + e.To
	case trace.Fault:
		return e.Text + " " + e.To
	case trace.Verdict:
		return e.To + ": " + e.Text
	case trace.LeaseAcquire, trace.LeaseRenew, trace.LeaseRelease:
		return strings.TrimPrefix(string(e.Kind), "lease_") + " " + string(e.Lease.Answer)
	}
	return string(e.Kind)
}

func (p *picture) describe(i int) string {
	e := p.shown[i]
	text := fmt.Sprintf("%d  %9.3f ms  %-18s %-14s %s", p.from+i, p.ms(e), e.Process, labelOf(e), e.Key)
	if e.Term != 0 {
		text += fmt.Sprintf(" term=%d", e.Term)
	}
	if e.Who != "" {
		text += " who=" + e.Who
	}
	if e.Lease != nil {
		text += fmt.Sprintf(" %+v", *e.Lease)
	}
	if e.Text != "" {
		text += " " + e.Text
	}
	if len(e.Words) > 0 {
		text += " " + strings.Join(e.Words, ", ")
	}
	return text
}

// drawTable lists the events in words.
func (p *picture) drawTable() {
	p.print(`<table><tr><th>event</th></tr>`)
	for i := range p.shown {
		class := ""
		if p.from+i == p.illegal {
			class = ` class="bad"`
		}
		p.print(`<tr%s><td>%s</td></tr>`, class, html.EscapeString(p.describe(i)))
	}
	p.print(`</table>`)
}
