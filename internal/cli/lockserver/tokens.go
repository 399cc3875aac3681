package lockserver

import (
	"os"
	"strings"

	"github.com/pglatch/pglatch/internal/cli/program"
)

// ReadTokens reads the bearer tokens of a file, nil if there is no file. Its errors
// quote none.
func ReadTokens(flag, file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, program.UsageError("%s: %w", flag, err)
	}
	var tokens []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if tokens == nil {
		return nil, program.UsageError("%s: %s has no token", flag, file)
	}
	return tokens, nil
}
