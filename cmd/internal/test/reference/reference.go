// Package reference makes the generated parts of the reference pages from the code: from doc comments, commands, the
// description of the HTTP API, and metrics.
package reference

import (
	"fmt"
	"regexp"
	"strings"
)

// A block is a generated part of a page: what is between its two markers.
//
//	<!-- generated: NAME -->
//	…
//	<!-- end of generated: NAME -->
var block = regexp.MustCompile(`(?s)(<!-- generated: ([^\n]+?) -->\n)(.*?)(<!-- end of generated: ([^\n]+?) -->\n)`)

// fill returns a page with its blocks made anew. It is an error if a block has no maker.
func fill(page string, makers map[string]func() string) (filled string, names []string, err error) {
	filled = block.ReplaceAllStringFunc(page, func(whole string) string {
		m := block.FindStringSubmatch(whole)
		maker, ok := makers[m[2]]
		if !ok || m[2] != m[5] {
			err = fmt.Errorf("nothing makes the block %q, which ends with %q", m[2], m[5])
			return whole
		}
		names = append(names, m[2])
		return m[1] + "\n" + maker() + "\n" + m[4]
	})
	return filled, names, err
}

// table returns a table in Markdown.
func table(header []string, rows [][]string) string {
	var s strings.Builder
	line := func(cells []string) {
		s.WriteString("|")
		for _, cell := range cells {
			if cell == "" {
				s.WriteString(" |")
				continue
			}
			s.WriteString(" " + cell + " |")
		}
		s.WriteString("\n")
	}
	line(header)
	s.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return s.String()
}

// code is text in backticks.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// codes are several texts in backticks.
func codes(all []string) string {
	quoted := make([]string, len(all))
	for i, each := range all {
		quoted[i] = code(each)
	}
	return strings.Join(quoted, ", ")
}

// prose is text as a cell has it: without what Markdown or HTML would take for its own.
var prose = strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ").Replace
