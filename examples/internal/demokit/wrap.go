package demokit

import (
	"strings"
	"unicode/utf8"
)

// defaultWidth is for what is no terminal, and for one that does not say.
const defaultWidth = 80

// wrap breaks text at spaces into lines of at most width columns, of which the first
// has begun, and others begin, with indent columns. A word that is longer gets a line of
// its own and is not broken. A line that fits stays as it is, spaces and all.
func wrap(text string, indent, width int) string {
	if indent+columns(text) <= width {
		return text
	}
	var b strings.Builder
	at, begun := indent, false
	for word := range strings.FieldsSeq(text) {
		switch n := columns(word); {
		case begun && at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent + n
		case begun:
			b.WriteByte(' ')
			at += 1 + n
		default:
			at += n
		}
		b.WriteString(word)
		begun = true
	}
	return b.String()
}

// columns is how wide text is, without its colours. Each character is taken for one
// column.
func columns(text string) int {
	n := 0
	for {
		before, after, colour := strings.Cut(text, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !colour {
			return n
		}
		_, text, _ = strings.Cut(after, "m")
	}
}
