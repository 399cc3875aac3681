package web

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
)

const (
	hourSpaces = 8  // namespaces in the last hour
	hourEvents = 8  // events
	minutes    = 60 // points of a line
)

// An hourView is the last hour: lines for each namespace, and the newest events.
type hourView struct {
	Spaces []hourSpace
	Left   int // namespaces that are not shown
	Events []incident.Event
	Began  string
}

// An hourSpace is the last hour of a namespace.
type hourSpace struct {
	Name         string
	Waits, Holds svg
	Most         int    // that waited at once
	Wait, Hold   string // the longest
}

// A line is one value a minute, the oldest first; -1 = nothing was seen.
type line [minutes]float64

func (l *line) add(minute int, value float64) { l[minute] = max(l[minute], value) }

// hour summarizes the last hour.
func (v *view) hour() *hourView {
	type space struct {
		name               string
		waiting, held      line // requests; seconds
		most               int
		longest, heldSince time.Duration
	}
	all := map[string]*space{}
	var seen line
	for i := range seen {
		seen[i] = -1
	}
	past := &v.state.Past
	for i := range past.Frames {
		f := &past.Frames[i]
		minute := minutes - 1 - int(v.At.Truncate(time.Minute).Sub(f.At.Truncate(time.Minute))/time.Minute)
		if minute < 0 || minute >= minutes {
			continue
		}
		seen.add(minute, 0)
		for _, s := range f.Spaces {
			one := all[s.Name]
			if one == nil {
				one = &space{name: s.Name}
				all[s.Name] = one
			}
			one.waiting.add(minute, float64(s.Waiting))
			one.held.add(minute, s.Since.Seconds())
			one.most, one.longest, one.heldSince = max(one.most, s.Waiting), max(one.longest, s.Longest), max(one.heldSince, s.Since)
		}
	}
	h := &hourView{Began: clock(past.Began)}
	spaces := slices.SortedFunc(maps.Values(all), func(a, b *space) int {
		return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(b.heldSince, a.heldSince), cmp.Compare(a.name, b.name))
	})
	for _, s := range spaces[:min(len(spaces), hourSpaces)] {
		h.Spaces = append(h.Spaces, hourSpace{
			Name: cmp.Or(s.name, "without a name"), Most: s.most, Wait: incident.Age(s.longest), Hold: incident.Age(s.heldSince),
			Waits: spark(s.waiting, seen, fmt.Sprintf("%d waited at most", s.most)), Holds: spark(s.held, seen, "held for at most "+incident.Age(s.heldSince)),
		})
	}
	h.Left = len(spaces) - len(h.Spaces)
	for i := len(past.Events) - 1; i >= 0 && len(h.Events) < hourEvents; i-- {
		h.Events = append(h.Events, past.Events[i])
	}
	return h
}

// spark draws values as a line with gaps where nothing was seen. says describes it for those who do not see it.
func spark(values, seen line, says string) svg {
	const height = 20
	top := max(slices.Max(values[:]), 1)
	var path strings.Builder
	pen := "M"
	for i, value := range values {
		if seen[i] < 0 {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%d %.1f", pen, 2*i, height-(height-2)*value/top-1)
		if pen == "M" { // a point alone is a dot
			path.WriteString("h.5")
		}
		pen = "L"
	}
	return svg(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%s"><path d="%s"/></svg>`, //nolint:gosec // escaped
		2*minutes, height, html.EscapeString(says), path.String()))
}
