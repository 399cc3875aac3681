package lockserver

import (
	"iter"
	"slices"
	"strings"
)

// wordsOfLines yields the words of each line that has some, and its number. What follows # at
// the beginning of a word is left out.
func wordsOfLines(content string) iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		number := 0
		for line := range strings.Lines(content) {
			number++
			words := strings.Fields(line)
			if i := slices.IndexFunc(words, isComment); i >= 0 {
				words = words[:i]
			}
			if len(words) > 0 && !yield(number, words) {
				return
			}
		}
	}
}

func isComment(word string) bool { return strings.HasPrefix(word, "#") }
