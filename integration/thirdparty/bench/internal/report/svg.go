package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The plot has a panel for each of six loads, in two columns, with a bar for each system,
// on a logarithmic scale.
const (
	panelWidth  = 440
	nameWidth   = 150
	valueWidth  = 60
	barHeight   = 14
	panelHead   = 34
	panelGap    = 18
	across      = 2
	leastOnAxis = 100 // cycles per second, where the bars begin
)

func panels() []column {
	return []column{
		{Random, 1, "random keys, 1 worker"},
		{Random, 64, "random keys, 64 workers"},
		{Random, 512, "random keys, 512 workers"},
		{Hot, 64, "one hot key, 64 workers"},
		{TwoProcesses, 64, "one hot key, 2 × 32 workers"},
		{Zipf, 64, "Zipf mix, 64 workers"},
	}
}

const svgStyle = `<style>
text { font: 11px system-ui, sans-serif; fill: #24292f }
.title { font-size: 13px; font-weight: 600 }
.value { font-variant-numeric: tabular-nums }
.peer { fill: #8c959f }
.ours { fill: #0969da }
.grid { stroke: #8c959f; stroke-opacity: .25 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .peer { fill: #6e7681 }
  .ours { fill: #58a6ff }
}
</style>
`

// SVG returns the plot of the throughputs, readable on light and dark backgrounds.
func (r *Report) SVG() string {
	most := 10.0 * leastOnAxis
	for _, row := range r.Rows {
		if row.Workload != Hold {
			most = max(most, row.OpsPerS)
		}
	}
	height := panelHead + len(r.Order)*barHeight + panelGap
	rows := (len(panels()) + across - 1) / across
	var b strings.Builder
	w, h := across*panelWidth, rows*height+24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Cycles of lock and unlock per second">`+"\n", w, h, w, h)
	b.WriteString(svgStyle)
	for i, p := range panels() {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n", i%across*panelWidth, i/across*height)
		r.panel(&b, p, most)
		b.WriteString("</g>\n")
	}
	fmt.Fprintf(&b, "<text x=\"8\" y=\"%d\">Cycles of lock and unlock per second, logarithmic scale. %s, %d cores, %s.</text>\n</svg>\n",
		h-8, html.EscapeString(r.Machine.CPU), r.Machine.Cores, html.EscapeString(strings.SplitN(r.Machine.Date, "T", 2)[0]))
	return b.String()
}

func (r *Report) panel(b *strings.Builder, p column, most float64) {
	const width = panelWidth - nameWidth - valueWidth
	scale := func(ops float64) float64 {
		return width * max(0, math.Log10(ops/leastOnAxis)) / math.Log10(most/leastOnAxis)
	}
	fmt.Fprintf(b, "<text class=\"title\" x=\"8\" y=\"18\">%s</text>\n", html.EscapeString(p.title))
	for tick := 10.0 * leastOnAxis; tick <= most; tick *= 10 {
		x := nameWidth + scale(tick)
		fmt.Fprintf(b, "<path class=\"grid\" d=\"M%.1f %d V%d\"/>\n", x, panelHead-8, panelHead+len(r.Order)*barHeight)
	}
	for i, name := range r.Order {
		y := panelHead + i*barHeight
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", nameWidth-6, y+2, html.EscapeString(name))
		row, ok := r.Rows.find(p.workload, name, p.workers, 0)
		if !ok {
			fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">not run</text>\n", nameWidth, y+2)
			continue
		}
		class := "peer"
		if strings.HasPrefix(name, "pglatch") {
			class = "ours"
		}
		length := max(scale(row.OpsPerS), 1)
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", class, nameWidth, y-barHeight/2, length, barHeight-3)
		fmt.Fprintf(b, "<text class=\"value\" x=\"%.1f\" y=\"%d\">%s</text>\n", nameWidth+length+5, y+2, number(row.OpsPerS))
	}
}
