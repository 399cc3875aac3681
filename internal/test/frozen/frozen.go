// Package frozen compares facts that other programs rely on with golden files: tables, messages, metrics, exit codes.
// docs/stability.md lists the files and the promise.
package frozen

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Message is what a test says if something frozen has changed.
const Message = "this is frozen since v0.1.0: see docs/stability.md"

// variable is set by make freeze: Check then adds new facts to the golden files.
const variable = "PGLATCH_FREEZE"

// Check fails if a fact of a golden file is not among facts any more, or if a fact is not in the file yet. The file is
// testdata/frozen/NAME.txt of the package, with one fact a line, sorted. Nothing removes a fact from it but an editor.
func Check(tb testing.TB, name string, facts []string) {
	tb.Helper()
	path := filepath.Join("testdata", "frozen", name+".txt")
	golden := read(tb, path)
	gone, added := compare(golden, facts)
	if len(added) > 0 && os.Getenv(variable) != "" {
		write(tb, path, append(golden, added...))
		added = nil
	}
	assert.Empty(tb, gone, "%s: %s", path, Message)
	assert.Empty(tb, added, "%s lacks these facts: make freeze adds them", path)
}

// compare returns what is only in golden, and what is only in facts.
func compare(golden, facts []string) (gone, added []string) {
	for _, fact := range golden {
		if !slices.Contains(facts, fact) {
			gone = append(gone, fact)
		}
	}
	for _, fact := range facts {
		if !slices.Contains(golden, fact) && !slices.Contains(added, fact) {
			added = append(added, fact)
		}
	}
	return gone, added
}

func read(tb testing.TB, path string) []string {
	tb.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // of the package under test
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(tb, err)
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

func write(tb testing.TB, path string, facts []string) {
	tb.Helper()
	slices.Sort(facts)
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o755))                            //nolint:gosec // nothing secret
	require.NoError(tb, os.WriteFile(path, []byte(strings.Join(facts, "\n")+"\n"), 0o644)) //nolint:gosec // the mode that git uses
}
