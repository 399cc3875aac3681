package frozen

import (
	"go/ast"
	"go/token"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gosource"
)

// Constants returns the constants of a package whose names match a pattern, with their values as the source has them:
// "ExitFree = 3".
func Constants(tb testing.TB, dir, pattern string) (facts []string) {
	tb.Helper()
	names := regexp.MustCompile("^(" + pattern + ")$")
	source := gosource.Parse(tb, dir)
	for _, file := range source.Files {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				facts = append(facts, constants(tb, source, spec.(*ast.ValueSpec), names)...)
			}
		}
	}
	require.NotEmpty(tb, facts, "%s has no constant %s", dir, pattern)
	return facts
}

func constants(tb testing.TB, source gosource.Package, spec *ast.ValueSpec, names *regexp.Regexp) (facts []string) {
	tb.Helper()
	for i, name := range spec.Names {
		if !names.MatchString(name.Name) {
			continue
		}
		require.Greater(tb, len(spec.Values), i, "%s has no value of its own", name.Name)
		facts = append(facts, name.Name+" = "+source.Text(tb, spec.Values[i]))
	}
	return facts
}
