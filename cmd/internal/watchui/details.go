package watchui

import (
	"fmt"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/internal/incident"
)

// viewOpen shows the selected key, scrolled.
func (m *Model) viewOpen() []Line {
	all := m.details()
	m.top = max(min(m.top, len(all)-m.page()-1), 0)
	return all[m.top:]
}

// details returns the lines about the selected key.
func (m *Model) details() []Line {
	r := m.opened()
	if r == nil {
		return m.texts(Span{Text: "the key is free by now", Style: Dim})
	}
	spans := []Span{{Text: r.Text() + ", " + r.Mode(), Style: Bold}}
	for _, v := range m.data.Verdicts {
		if v.Key == r.Key {
			spans = append(spans, Span{Text: v.Name + ": " + v.Text, Style: Trouble}, Span{Text: "  " + v.Advice})
		}
	}
	spans = append(spans, Span{}, Span{Text: fmt.Sprintf("held by %d", len(r.Holders)), Style: Bold})
	for _, p := range r.Holders {
		spans = append(spans, partySpan(p, Plain))
	}
	spans = append(spans, Span{}, Span{Text: fmt.Sprintf("waited for by %d, the oldest first", len(r.Waiters)), Style: Bold})
	for _, p := range r.Waiters {
		spans = append(spans, partySpan(p, Waiting))
	}
	spans = append(spans, Span{}, Span{Text: "what can be done", Style: Bold})
	for _, command := range remedies(r) {
		spans = append(spans, Span{Text: "  " + command})
	}
	return m.texts(spans...)
}

// opened returns the selected row, from all rows, because the filter may hide it; nil = it is gone.
func (m *Model) opened() *overview.Row {
	for _, r := range m.data.Rows {
		if identityOf(r) == m.selected {
			return r
		}
	}
	return nil
}

func partySpan(p overview.Party, style Style) Span {
	if p.Silent {
		style = Trouble
	}
	return Span{Text: "  " + p.String(), Style: style}
}

// texts breaks lines that are longer than the screen width.
func (m *Model) texts(spans ...Span) []Line {
	var lines []Line
	for _, s := range spans {
		rest := []rune(printable(s.Text))
		for {
			n := min(len(rest), max(m.width, 1))
			lines = append(lines, Line{{Width: m.width, Text: string(rest[:n]), Style: s.Style}})
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
	}
	return lines
}

// remedies returns the commands for a key, in the order in which to try them.
func remedies(r *overview.Row) []string {
	key := r.Key
	if incident.Hidden(key) {
		key = r.Tag.String()
	}
	all := []string{"pglatch status " + key + "        who, again, to copy"}
	if r.Kind == overview.Election {
		all = append(all, "pglatch leader resign "+key+"   asks the leader to let another lead")
	} else {
		all = append(all, "pglatch ask "+key+"           asks the holder to release it", "pglatch dump "+key+"          asks the holder to log its stack")
	}
	for _, p := range r.Holders {
		if p.PID != 0 {
			all = append(all, "pglatch terminate "+overview.PIDText(p.PID)+"     ends the session and frees its locks; shows them first")
		}
	}
	return all
}
