// Package legible shows text that others chose, so that it neither steers a terminal, nor fills a page, nor turns
// the words around it.
package legible

import (
	"strings"
	"unicode"
)

// What begins and ends an isolate: text whose direction does not reach what is around it.
const (
	firstStrongIsolate = '\u2068'
	popIsolate         = '\u2069'
)

// Line replaces what cannot be printed, such as control characters and U+202E, which turns round what
// follows, by "?". What Isolate added is left out: a terminal may show it as a character.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == firstStrongIsolate || r == popIsolate:
			return -1
		case unicode.IsPrint(r):
			return r
		}
		return '?'
	}, s)
}

// Clamp cuts the end off a text of more than so many characters.
func Clamp(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n == most {
			if rest := s[i:]; len([]rune(rest)) > 1 {
				return s[:i] + "…"
			}
			break
		}
	}
	return s
}

// Isolate keeps text that is written from right to left from turning the words around it, in a browser.
func Isolate(s string) string {
	if strings.IndexFunc(s, rightToLeft) < 0 {
		return s
	}
	return string(firstStrongIsolate) + s + string(popIsolate)
}

// rightToLeft reports whether a character is of a script that is written so.
func rightToLeft(r rune) bool {
	return r >= 0x590 && r <= 0x8ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff || r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

// Quote is text that others chose within a sentence of ours, of so many characters at most.
func Quote(s string, most int) string { return Isolate(Clamp(Line(s), most)) }
