package docs_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gosource"
)

// section returns the text of a page under the heading of level two that ends with a text.
func section(t *testing.T, path, ends string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		if heading, body, _ := strings.Cut(part, "\n"); strings.HasSuffix(heading, ends) {
			return body
		}
	}
	require.Fail(t, "there is no such section", "%s: %s", path, ends)
	return ""
}

var sentinel = regexp.MustCompile(`^Err[A-Z]`)

func TestTheErrorsPageHasEverySentinel(t *testing.T) {
	t.Parallel()
	for dir, ends := range map[string]string{
		"advisory": "package advisory", "leader": "package leader", "leader/shards": "package leader", "leader/postgres": "package leader",
		"lease": "lease and once", "lease/leasehttp": "lease and once", "lease/postgres": "lease and once", "once": "lease and once",
	} {
		body, found := section(t, "reference/errors.md", ends), 0
		source := gosource.Parse(t, filepath.Join("..", dir))
		for i, file := range source.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok {
					for _, name := range spec.Names {
						if sentinel.MatchString(name.Name) {
							found++
							assert.Regexp(t, `\b`+name.Name+"`", body, "%s: its section of reference/errors.md", source.Paths[i])
						}
					}
				}
				_, isFunc := n.(*ast.FuncDecl)
				return !isFunc
			})
		}
		assert.Positive(t, found, "the control: %s", dir)
	}
}
