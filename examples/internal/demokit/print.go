package demokit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The colors of a terminal.
const (
	Bold  = "1"
	Faint = "2"
	Red   = "31"
	Green = "32"
	Cyan  = "36"
)

// indent is the column at which the words of a line begin, after the time or the mark of a claim.
const indent = 10

// Paint colors text if the output shows colors.
func (d *Demo) Paint(color, text string) string {
	if !d.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// Printf prints without a time.
func (d *Demo) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...) // an error means that nobody reads the output any more
}

// Say prints an event with the current time.
func (d *Demo) Say(format string, args ...any) {
	d.Printf("%s  %s\n", d.Paint(Faint, fmt.Sprintf("%7.3fs", time.Since(d.began).Seconds())), fmt.Sprintf(format, args...))
}

// Draw prints lines without a time.
func (d *Demo) Draw(color string, lines ...string) {
	for _, line := range lines {
		d.Printf("%*s%s\n", indent, "", d.Paint(color, line))
	}
}

// Status prints a line that changes often, at most once a second.
func (d *Demo) Status(text string) {
	if time.Since(d.told) >= time.Second {
		d.told = time.Now()
		d.Say("%s", text)
	}
}

// Claim prints a promise and whether it holds.
func (d *Demo) Claim(holds bool, format string, args ...any) {
	if d.ctx.Err() != nil {
		return
	}
	d.claims++
	mark, text := d.Paint(Green, "✓"), fmt.Sprintf(format, args...)
	if !holds {
		mark, text = d.Paint(Red, "✗"), "NOT TRUE: "+text
		d.wrong = append(d.wrong, text)
	}
	d.Printf("       %s  %s\n", mark, text)
}

// ClaimNone prints a promise and how often it was broken.
func (d *Demo) ClaimNone(broken int, format string, args ...any) {
	if broken > 0 {
		format, args = format+" (%d times)", append(args, broken)
	}
	d.Claim(broken == 0, format, args...)
}

// verdict prints how many claims held. The demo fails if one did not.
func (d *Demo) verdict() {
	d.Printf("\n")
	if len(d.wrong) > 0 {
		d.Errorf("%d of %d claims failed:\n  %s", len(d.wrong), d.claims, strings.Join(d.wrong, "\n  "))
		return
	}
	d.Say("%s", d.Paint(Green, fmt.Sprintf("all %d claims hold", d.claims)))
}

// A Span is a bar of a Timeline.
type Span struct {
	Row          string
	Began, Ended time.Time
}

// Timeline draws spans over time, and a row for each name.
func (d *Demo) Timeline(spans []Span) {
	const columns = 60
	if len(spans) == 0 {
		return
	}
	first := slices.MinFunc(spans, func(a, b Span) int { return a.Began.Compare(b.Began) }).Began
	last := slices.MaxFunc(spans, func(a, b Span) int { return a.Ended.Compare(b.Ended) }).Ended
	length := max(last.Sub(first), time.Millisecond)
	column := func(t time.Time) int { return min(int(columns*t.Sub(first)/length), columns-1) }
	rows, margin := map[string][]rune{}, 0
	for _, s := range spans {
		if rows[s.Row] == nil {
			rows[s.Row], margin = []rune(strings.Repeat("·", columns)), max(margin, utf8.RuneCountInString(s.Row))
		}
		for i := column(s.Began); i <= column(s.Ended); i++ {
			rows[s.Row][i] = '█'
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		d.Printf("%*s%s\n", indent, "", d.Paint(Cyan, fmt.Sprintf("%-*s", margin, name))+" "+string(rows[name]))
	}
	d.Printf("%*s%s\n", indent+margin+1, "", d.Paint(Faint, fmt.Sprintf("0%*s", columns-1, Pretty(length))))
}

// Pretty formats a duration for readers.
func Pretty(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.4g s", d.Round(10*time.Millisecond).Seconds())
}
