package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/pglatch/pglatch/internal/legible"
)

// An Output is a command's data in all its formats.
type Output struct {
	Document any   // --output json
	Lines    []any // --output jsonl; nil = Document on one line
	Text     Text
}

// A Text writes a command's data for people.
type Text func(*bytes.Buffer)

// Sentence returns an Output whose text is one line.
func Sentence(document any, text string) Output {
	return Output{Document: document, Text: func(w *bytes.Buffer) { fmt.Fprintln(w, text) }}
}

// Print writes data to stdout in the format of --output.
func (a *App) Print(o Output) error {
	switch a.settings.output {
	case "json":
		e := json.NewEncoder(os.Stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(o.Document)
	case "jsonl":
		if o.Lines == nil {
			o.Lines = []any{o.Document}
		}
		for _, line := range o.Lines {
			if err := a.PrintLine(line); err != nil {
				return err
			}
		}
		return nil
	}
	var text bytes.Buffer
	o.Text(&text)
	_, err := os.Stdout.Write(text.Bytes())
	return err
}

// PrintChange writes one of many changes: in the formats json and jsonl, each is a line.
func (a *App) PrintChange(o Output) error {
	if a.settings.output != "text" {
		return a.PrintLine(o.Document)
	}
	return a.Print(o)
}

// PrintLine writes one line of JSON.
func (a *App) PrintLine(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Lines makes Output.Lines from a list; never nil.
func Lines[T any](list []T) []any {
	all := make([]any, len(list))
	for i, v := range list {
		all[i] = v
	}
	return all
}

// The colors of text, as ANSI escape sequences.
const (
	Bold   = "\x1b[1m"
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// Paint colors text if the output has colors.
func (a *App) Paint(color, text string) string {
	if color == "" || !a.Colored() {
		return text
	}
	return color + text + plain
}

// A table is text in columns. Only whole rows have colors: tabwriter would count escape sequences
// as width.
type table struct {
	app    *App
	rows   []string
	colors []string
}

// NewTable returns a table with a header.
func (a *App) NewTable(header ...string) *table {
	t := &table{app: a}
	t.Add(Bold, header...)
	return t
}

func (t *table) Add(color string, cells ...string) {
	for i, cell := range cells {
		cells[i] = Printable(cell)
	}
	t.rows = append(t.rows, strings.Join(cells, "\t"))
	t.colors = append(t.colors, color)
}

// WriteTo writes the columns aligned.
func (t *table) WriteTo(w *bytes.Buffer) {
	var aligned bytes.Buffer
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(columns, strings.Join(t.rows, "\n")) // a Buffer accepts everything
	_ = columns.Flush()
	for i, line := range strings.Split(aligned.String(), "\n") {
		fmt.Fprintln(w, t.app.Paint(t.colors[i], strings.TrimRight(line, " ")))
	}
}

// CheckReason returns an error if a reason does not fit on one line of an audit.
func CheckReason(why string) error {
	const most = 380 // a lock server takes 512, with the person's name
	if why == "" || len(why) > most || why != Printable(why) {
		return UsageError("say why, in %d bytes at most on one line", most)
	}
	return nil
}

// Printable keeps text from others from controlling the terminal.
func Printable(s string) string { return legible.Line(s) }
