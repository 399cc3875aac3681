package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// chart draws the spans over time, one row per label.
func (d *demo) chart(spans []span, label func(span) string) {
	const width = 60
	if len(spans) == 0 {
		return
	}
	first, last := spans[0].Began, spans[0].Began
	for _, s := range spans {
		if s.Ended != nil && s.Ended.After(last) {
			last = *s.Ended
		}
	}
	total := max(last.Sub(first), time.Millisecond)
	column := func(t time.Time) int { return int(width * t.Sub(first) / total) }
	rows := map[string][]rune{}
	for _, s := range spans {
		row := rows[label(s)]
		if row == nil {
			row = []rune(strings.Repeat("·", width))
			rows[label(s)] = row
		}
		end := last
		if s.Ended != nil {
			end = *s.Ended
		}
		from := min(column(s.Began), width-1)
		for i := from; i < max(column(end), from+1); i++ {
			row[i] = '█'
		}
	}
	indent := ""
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		d.Draw(d.Paint(demokit.Cyan, name) + " " + string(rows[name]))
		indent = strings.Repeat(" ", len(name)+1)
	}
	d.Draw(d.Paint(demokit.Faint, fmt.Sprintf("%s0%*s", indent, width-1, demokit.Pretty(total))))
}
