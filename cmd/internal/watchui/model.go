// Package watchui shows keys on a terminal, live. A Model holds the contents and knows no terminal;
// a screen draws it.
package watchui

import (
	"slices"
	"time"
	"unicode"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// Data is the result of one query.
type Data struct {
	Database string
	At       time.Time // by the server's clock
	Rows     []*overview.Row
	Silent   []string // processes that listen and do not answer
	Verdicts []monitor.Verdict
	Fleet    []overview.Section // shards, ticks, mailboxes and leases
	Err      error              // why the query failed; the Model keeps its data
}

// A Model is the contents and state of the display. The zero Model has no size.
type Model struct {
	Interval time.Duration
	Sort     string
	Most     int // number of keys to show; 0 = those that fit

	data          Data
	failing       error
	width, height int
	shown         []*overview.Row // the rows that the filter keeps, in order
	selected      identity        // the cursor stays with its key, wherever that moves
	top           int             // first visible line
	filter        string
	typing        bool // editing the filter
	open          bool // showing the selected key
	fleet         bool // showing what tables have
}

// An identity identifies a row across queries.
type identity struct {
	tag  namespace.Tag
	kind overview.Kind
	key  string // of a semaphore whose tag no process reported
}

func identityOf(r *overview.Row) identity {
	i := identity{tag: r.Tag, kind: r.Kind}
	if !r.Tag.Valid() {
		i.key = r.Key
	}
	return i
}

// Resize sets the size of the terminal.
func (m *Model) Resize(width, height int) { m.width, m.height = width, height }

// Show takes over the result of a query.
func (m *Model) Show(d Data) {
	m.failing = d.Err
	if d.Err == nil {
		m.data = d
		m.arrange()
	}
}

// arrange filters and sorts. A cursor on the first row stays on the first row; any other stays on
// its key.
func (m *Model) arrange() {
	m.shown = overview.Filter{Text: m.filter}.Apply(m.data.Rows)
	overview.Sort(m.shown, m.Sort)
	if m.Most > 0 {
		m.shown = m.shown[:min(m.Most, len(m.shown))]
	}
	if m.open {
		return // even if the key is free by now
	}
	if m.selected == (identity{}) || m.cursor() < 0 {
		m.selectRow(0)
	}
}

// cursor is the index of the selected row; -1 = it is not shown.
func (m *Model) cursor() int {
	return slices.IndexFunc(m.shown, func(r *overview.Row) bool { return identityOf(r) == m.selected })
}

func (m *Model) selectRow(i int) {
	m.selected = identity{}
	if len(m.shown) > 0 {
		m.selected = identityOf(m.shown[min(max(i, 0), len(m.shown)-1)])
	}
}

// Press handles a key: its name, as "Up" and "Ctrl+C", or the character. It reports whether to end
// the program.
func (m *Model) Press(key string) (quit bool) {
	switch {
	case key == "Ctrl+C":
		return true
	case m.typing:
		m.edit(key)
		return false
	case key == "q":
		return true
	case m.open:
		m.pressOpen(key)
		return false
	case m.fleet:
		m.pressFleet(key)
		return false
	}
	switch key {
	case "s":
		orders := overview.Orders()
		m.Sort = orders[(slices.Index(orders, m.Sort)+1)%len(orders)]
		m.arrange()
		m.selectRow(0)
	case "f":
		m.fleet, m.top = true, 0
	case "/":
		m.typing = true
	case "Esc":
		m.filter = ""
		m.arrange()
	case "Enter":
		if m.cursor() >= 0 {
			m.open, m.top = true, 0
		}
	default:
		m.selectRow(moved(key, m.cursor(), m.page(), len(m.shown)))
	}
	return false
}

// edit edits the filter, which takes effect at once.
func (m *Model) edit(key string) {
	text := []rune(m.filter)
	switch typed := []rune(key); {
	case key == "Enter":
		m.typing = false
	case key == "Esc":
		m.typing, text = false, nil
	case key == "Backspace" && len(text) > 0:
		text = text[:len(text)-1]
	case len(typed) == 1 && unicode.IsPrint(typed[0]):
		text = append(text, typed[0])
	}
	m.filter = string(text)
	m.arrange()
	m.selectRow(0)
}

// pressOpen is Press while one key is shown.
func (m *Model) pressOpen(key string) {
	if key == "Esc" || key == "Backspace" || key == "Left" {
		m.open, m.top = false, 0
		m.arrange()
		return
	}
	m.top = moved(key, m.top, m.page(), len(m.details()))
}

// pressFleet is Press while shards, ticks, mailboxes and leases are shown.
func (m *Model) pressFleet(key string) {
	if key == "Esc" || key == "Backspace" || key == "Left" || key == "f" {
		m.fleet, m.top = false, 0
		return
	}
	m.top = moved(key, m.top, m.page(), len(m.fleetLines()))
}

// moved returns the index that a key leads to.
func moved(key string, place, page, end int) int {
	switch key {
	case "Up", "k":
		place--
	case "Down", "j":
		place++
	case "PgUp":
		place -= page
	case "PgDn", " ":
		place += page
	case "Home", "g":
		place = 0
	case "End", "G":
		place = end
	}
	return max(place, 0)
}
