package lockserver

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// eachLine calls do with the words of each line of a file, without empty lines, and with the place of the line. A word
// that begins with # starts a comment. A file without lines has none of what it is for. A byte order mark, which
// editors add invisibly, is refused: it would become part of the first word.
func eachLine(flag, file, what string, do func(at string, words []string) error) error {
	content, err := os.ReadFile(file)
	switch {
	case err != nil:
		return program.UsageError("%s: %w", flag, err)
	case strings.ContainsRune(string(content), '\ufeff'):
		return program.UsageError("%s: %s has a byte order mark (U+FEFF): save it as UTF-8 without one", flag, file)
	case !utf8.Valid(content):
		return program.UsageError("%s: %s is not UTF-8: save it as that", flag, file)
	}
	number, found := 0, false
	for line := range strings.Lines(string(content)) {
		number++
		words := strings.Fields(line)
		if i := slices.IndexFunc(words, isComment); i >= 0 {
			words = words[:i]
		}
		if len(words) == 0 {
			continue
		}
		found = true
		if err := do(fmt.Sprintf("%s: line %d of %s", flag, number, file), words); err != nil {
			return err
		}
	}
	if !found {
		return program.UsageError("%s: %s has no %s", flag, file, what)
	}
	return nil
}

func isComment(word string) bool { return strings.HasPrefix(word, "#") }

// checkOnce refuses a name that occurs twice in a line: only one of them would count, and it is unclear which.
func checkOnce(at string, words []string) error {
	var seen []string
	for _, word := range words {
		name, _, found := strings.Cut(word, "=")
		if found && slices.Contains(seen, name) {
			return program.UsageError("%s has %s= twice: say it once", at, name)
		}
		seen = append(seen, name)
	}
	return nil
}
