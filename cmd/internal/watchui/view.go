package watchui

import (
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/overview"
)

// A Style is the appearance of text.
type Style int

// The styles.
const (
	Plain Style = iota
	Bold
	Dim
	Waiting  // a key with waiters
	Trouble  // a silent process, or a failed query
	Selected // the cursor
)

// A Span is text at a position in a line.
type Span struct {
	X, Width int // Width: the most cells that it may use
	Text     string
	Style    Style
}

// A Line is one line of the screen.
type Line []Span

// String returns the line as text.
func (l Line) String() string {
	var b strings.Builder
	at := 0
	for _, s := range l {
		b.WriteString(strings.Repeat(" ", max(s.X-at, 0)))
		text := cut(s.Text, s.Width)
		b.WriteString(text)
		at = s.X + len([]rune(text))
	}
	return b.String()
}

// The lines around the rows: two above, with the header, and one below.
const (
	above = 2
	below = 1
)

// page is the number of rows that fit.
func (m *Model) page() int { return max(m.height-above-below, 1) }

// View returns the lines of the screen, as many as it has.
func (m *Model) View() []Line {
	if m.height < above+below+1 || m.width < 20 {
		return []Line{{{Width: m.width, Text: "too small"}}}
	}
	lines := []Line{m.title()}
	switch {
	case m.open:
		lines = append(lines, m.viewOpen()...)
	case m.fleet:
		all := m.fleetLines()
		m.top = max(min(m.top, len(all)-m.page()-1), 0)
		lines = append(lines, all[m.top:]...)
	default:
		lines = append(lines, m.viewRows()...)
	}
	for len(lines) < m.height-below {
		lines = append(lines, nil)
	}
	return append(lines[:m.height-below], m.footer())
}

// title shows the place and the time, and problems with them.
func (m *Model) title() Line {
	if m.failing != nil {
		text := fmt.Sprintf("nothing seen since %s: %v", m.data.At.Format(time.TimeOnly), m.failing)
		return Line{{Width: m.width, Text: printable(text), Style: Trouble}}
	}
	waited := 0
	for _, r := range m.data.Rows {
		if len(r.Waiters) > 0 {
			waited++
		}
	}
	text := fmt.Sprintf("%s  %s  every %v  %d keys, %d waited for", printable(m.data.Database), m.data.At.Format(time.TimeOnly), m.Interval, len(m.data.Rows), waited)
	line := Line{{Width: m.width, Text: text, Style: Bold}}
	if trouble := m.trouble(); trouble != "" {
		at := len([]rune(text)) + 2
		line = append(line, Span{X: at, Width: m.width - at, Text: printable(trouble), Style: Trouble})
	}
	return line
}

// trouble returns the problems, the worst first, and the silent processes.
func (m *Model) trouble() string {
	var all []string
	for _, v := range m.data.Verdicts {
		if v.Severity != "note" {
			all = append(all, strings.TrimSpace(v.Name+" "+v.Key))
		}
	}
	if n := len(m.data.Silent); n > 0 {
		all = append(all, fmt.Sprintf("%d silent: %s", n, strings.Join(m.data.Silent, ", ")))
	}
	return strings.Join(all, "; ")
}

func (m *Model) footer() Line {
	text := "↑↓ move  enter open  s sort: " + m.Sort + "  / filter  q quit  f shards, ticks, turns, leases"
	switch {
	case m.typing:
		text = "filter: " + m.filter + "_  (enter keeps it, esc drops it)"
	case m.open, m.fleet:
		text = "↑↓ scroll  esc back  q quit"
	case m.filter != "":
		text = "filter: " + m.filter + "  (esc drops it)  ↑↓ move  enter open  s sort: " + m.Sort + "  q quit"
	}
	return Line{{Width: m.width, Text: printable(text), Style: Dim}}
}

// viewRows shows the table, scrolled to the cursor.
func (m *Model) viewRows() []Line {
	cursor := m.cursor()
	if cursor >= 0 {
		m.top = min(max(m.top, cursor-m.page()+1), cursor)
	}
	m.top = max(min(m.top, len(m.shown)-m.page()), 0)
	shown := m.shown[m.top:min(m.top+m.page(), len(m.shown))]
	cells := make([][]string, 0, len(shown)+1)
	cells = append(cells, overview.Header())
	for _, r := range shown {
		cells = append(cells, r.Cells())
	}
	columns := fit(cells, m.width)
	lines := []Line{columns.line(cells[0], Bold)}
	for i, r := range shown {
		style := Plain
		switch {
		case m.top+i == cursor:
			style = Selected
		case r.Silent():
			style = Trouble
		case len(r.Waiters) > 0:
			style = Waiting
		}
		lines = append(lines, columns.line(cells[i+1], style))
	}
	if len(shown) == 0 {
		text := "nothing is locked"
		if m.filter != "" {
			text = "nothing matches"
		}
		lines = append(lines, Line{{Width: m.width, Text: text, Style: Dim}})
	}
	return lines
}

// fleetLines shows each section as a table.
func (m *Model) fleetLines() (lines []Line) {
	for _, s := range m.data.Fleet {
		cells := [][]string{s.Header}
		for _, l := range s.Lines {
			cells = append(cells, l.Cells)
		}
		widths := widest(cells)
		lines = append(lines, nil, widths.line(cells[0], Bold))
		for i, l := range s.Lines {
			style := Plain
			if l.Trouble {
				style = Trouble
			}
			lines = append(lines, widths.line(cells[i+1], style))
		}
	}
	if len(lines) == 0 {
		lines = m.texts(Span{Text: "no table has shards, ticks, mailboxes or leases", Style: Dim})
	}
	return lines
}
