package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

// header begins a Markdown table.
func header(b *strings.Builder, title string, heads ...string) {
	fmt.Fprintf(b, "%s\n\n", title)
	line(b, heads...)
	line(b, append([]string{"---"}, slices.Repeat([]string{"--:"}, len(heads)-1)...)...)
}

func line(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "\n", " "), "|", "\\|")
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// number formats 1234567 as 1,234,567.
func number(f float64) string { return legible.Number(int(math.Round(f))) }

// decimal formats a number with its significant digits.
func decimal(f float64) string {
	switch {
	case f >= 100 || f == math.Trunc(f):
		return number(f)
	case f >= 3:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.2f", f)
	}
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

// duration formats microseconds.
func duration(us float64) string {
	d := time.Duration(us * float64(time.Microsecond))
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= 10*time.Microsecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}
