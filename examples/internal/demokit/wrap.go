package demokit

import (
	"strings"
	"unicode/utf8"
)

// defaultWidth is used for outputs that are not terminals and for terminals of unknown width.
const defaultWidth = 80

// wrap breaks text at spaces into lines of at most width columns. The first indent columns of
// the first line are already printed. Later lines begin with indent spaces. A longer word gets
// its own line and is not broken. A line that fits stays unchanged, including its spaces.
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

// columns returns the width of text without its colours. It counts each character as one
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
