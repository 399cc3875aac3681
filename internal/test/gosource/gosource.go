// Package gosource parses the source of a package, for tests that compare it with pages and golden files.
package gosource

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Package is the source of a package without its tests, with comments.
type Package struct {
	Files []*ast.File // in the order of their names
	Paths []string    // of the Files

	set *token.FileSet
}

// Parse parses the package in a directory.
func Parse(tb testing.TB, dir string) Package {
	tb.Helper()
	p := Package{set: token.NewFileSet()}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(tb, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(p.set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(tb, err)
		p.Files, p.Paths = append(p.Files, file), append(p.Paths, path)
	}
	return p
}

// Text returns an expression as gofmt writes it.
func (p Package) Text(tb testing.TB, e ast.Expr) string {
	tb.Helper()
	var text strings.Builder
	require.NoError(tb, printer.Fprint(&text, p.set, e))
	return text.String()
}
