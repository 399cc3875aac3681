package frozen

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Constants returns the constants of a package whose names match a pattern, with their values as the source has them:
// "ExitFree = 3".
func Constants(tb testing.TB, dir, pattern string) (facts []string) {
	tb.Helper()
	names := regexp.MustCompile("^(" + pattern + ")$")
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(tb, err)
	set := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(tb, err)
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				facts = append(facts, constants(tb, set, spec.(*ast.ValueSpec), names)...)
			}
		}
	}
	require.NotEmpty(tb, facts, "%s has no constant %s", dir, pattern)
	return facts
}

func constants(tb testing.TB, set *token.FileSet, spec *ast.ValueSpec, names *regexp.Regexp) (facts []string) {
	tb.Helper()
	for i, name := range spec.Names {
		if !names.MatchString(name.Name) {
			continue
		}
		require.Greater(tb, len(spec.Values), i, "%s has no value of its own", name.Name)
		var value strings.Builder
		require.NoError(tb, printer.Fprint(&value, set, spec.Values[i]))
		facts = append(facts, name.Name+" = "+value.String())
	}
	return facts
}
