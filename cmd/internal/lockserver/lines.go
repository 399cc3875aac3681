package lockserver

import (
	"iter"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// readLines reads a file for wordsOfLines. It refuses a byte order mark, which editors add invisibly: the mark
// would become part of the first word.
func readLines(flag, file string) (string, error) {
	content, err := os.ReadFile(file)
	switch {
	case err != nil:
		return "", program.UsageError("%s: %w", flag, err)
	case strings.ContainsRune(string(content), '\ufeff'):
		return "", program.UsageError("%s: %s has a byte order mark (U+FEFF): save it as UTF-8 without one", flag, file)
	case !utf8.Valid(content):
		return "", program.UsageError("%s: %s is not UTF-8: save it as that", flag, file)
	}
	return string(content), nil
}

// checkOnce refuses a name that occurs twice in a line: only one of them would count, and it is unclear which.
func checkOnce(flag, file string, number int, words []string) error {
	var seen []string
	for _, word := range words {
		name, _, found := strings.Cut(word, "=")
		if found && slices.Contains(seen, name) {
			return program.UsageError("%s: line %d of %s has %s= twice: say it once", flag, number, file, name)
		}
		seen = append(seen, name)
	}
	return nil
}

// wordsOfLines yields the words of each non-empty line, and its number. A word that begins with # starts a comment.
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
