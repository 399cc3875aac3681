package watchui

import (
	"context"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
)

// Run shows m on a terminal until the user quits or ctx ends. data delivers the results of repeated
// queries. Errors are those of the terminal, before anything was shown.
func Run(ctx context.Context, m *Model, screen tcell.Screen, colored bool, data <-chan Data) error {
	if err := screen.Init(); err != nil {
		return err
	}
	defer screen.Fini()
	m.Resize(screen.Size())
	for {
		draw(screen, m, colored)
		select {
		case <-ctx.Done():
			return nil
		case d := <-data:
			m.Show(d)
		case event := <-screen.EventQ():
			switch event := event.(type) {
			case *tcell.EventResize:
				m.Resize(event.Size())
				screen.Sync()
			case *tcell.EventKey:
				if m.Press(keyName(event)) {
					return nil
				}
			case nil: // the terminal is gone
				return nil
			}
		}
	}
}

// keyNames are the names of keys for Model.Press.
var keyNames = map[tcell.Key]string{
	tcell.KeyCtrlC: "Ctrl+C", tcell.KeyUp: "Up", tcell.KeyCtrlP: "Up", tcell.KeyDown: "Down", tcell.KeyCtrlN: "Down", tcell.KeyLeft: "Left", tcell.KeyPgUp: "PgUp", tcell.KeyPgDn: "PgDn",
	tcell.KeyHome: "Home", tcell.KeyEnd: "End", tcell.KeyEnter: "Enter", tcell.KeyEscape: "Esc", tcell.KeyBackspace: "Backspace",
}

// keyName returns the key's name for Model.Press; "" = it has none.
func keyName(e *tcell.EventKey) string {
	if e.Key() == tcell.KeyRune && e.Modifiers()&(tcell.ModCtrl|tcell.ModAlt|tcell.ModMeta) == 0 {
		return e.Str()
	}
	return keyNames[e.Key()]
}

func draw(screen tcell.Screen, m *Model, colored bool) {
	screen.Clear()
	for y, line := range m.View() {
		for _, span := range line {
			style := styleOf(span.Style, colored)
			x, end := span.X, span.X+span.Width
			rest := cut(span.Text, span.Width)
			for rest != "" && x < end {
				var width int
				rest, width = screen.Put(x, y, rest, style)
				x += max(width, 1)
			}
			for span.Style == Selected && x < end+gap { // the cursor is a bar
				screen.Put(x, y, " ", style)
				x++
			}
		}
	}
	screen.Show()
}

func styleOf(s Style, colored bool) tcell.Style {
	style := tcell.StyleDefault
	paint := func(c color.Color) tcell.Style {
		if colored {
			return style.Foreground(c)
		}
		return style
	}
	switch s {
	case Bold:
		return style.Bold(true)
	case Dim:
		return style.Dim(true)
	case Waiting:
		return paint(color.Olive)
	case Trouble:
		return paint(color.Maroon).Bold(true)
	case Selected:
		return style.Reverse(true)
	}
	return style
}
