package watchui

import "github.com/pglatch/pglatch/internal/legible"

// columns are the widths of a table's columns; 0 = left out.
type columns []int

// The columns by their importance: on a narrow terminal the last are left out first. The indexes
// are those of overview.Header.
var importance = []int{0, 2, 3, 4, 5, 6, 1, 7}

const gap = 2 // between columns

// fit chooses columns for a width. The first two by importance have the length that users give
// them. They shrink in favor of the others, down to a bound.
func fit(cells [][]string, width int) columns {
	natural := widest(cells)
	key, holder := importance[0], importance[1]
	least := func(i int) int {
		if i == key || i == holder {
			return min(natural[i], 12)
		}
		return natural[i]
	}
	chosen := make(columns, len(natural))
	free := width + gap
	for _, i := range importance {
		if need := least(i) + gap; need <= free {
			chosen[i] = least(i)
			free -= need
		}
	}
	for free > 0 { // the remaining width goes to the key and the holder
		before := free
		for _, i := range []int{key, holder} {
			if free > 0 && chosen[i] > 0 && chosen[i] < natural[i] {
				chosen[i]++
				free--
			}
		}
		if free == before {
			break
		}
	}
	return chosen
}

// widest returns the columns with the width of their longest cells.
func widest(cells [][]string) columns {
	widths := make(columns, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	return widths
}

func (c columns) line(cells []string, style Style) Line {
	line, x := Line{}, 0
	for i, cell := range cells {
		if c[i] > 0 {
			line = append(line, Span{X: x, Width: c[i], Text: printable(cell), Style: style})
			x += c[i] + gap
		}
	}
	return line
}

// cut shortens text to a number of characters.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + "…"
}

// printable keeps text from others from controlling the terminal.
func printable(s string) string { return legible.Line(s) }
