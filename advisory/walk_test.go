package advisory_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step is one function of a walk through the package, and the file that it is in.
type walkStep struct{ function, file string }

// walk reads the steps of a walk from ADR 29.
func walk(t *testing.T, title string) (steps []walkStep) {
	t.Helper()
	text, err := os.ReadFile("../docs/adr/0029-the-lock-table-is-a-pure-machine.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "\n"+title)
	require.True(t, ok, title)
	list := strings.SplitN(rest, "\n\n", 3)[1]
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)` in `([^`]+)`").FindAllStringSubmatch(list, -1) {
		steps = append(steps, walkStep{m[1], m[2]})
	}
	return steps
}

// calls returns what the methods of a file call by name, by Type.method.
func calls(t *testing.T, file string) map[string][]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	all := make(map[string][]string)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		of := f.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		id, ok := of.(*ast.Ident)
		require.True(t, ok)
		name := id.Name + "." + f.Name.Name
		all[name] = []string{}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				all[name] = append(all[name], s.Sel.Name)
			}
			return true
		})
	}
	return all
}

func TestTheWalksOfTheDecisionAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for title, most := range map[string]struct{ functions, files int }{
		"Acquire, the carrier:": {8, 5}, "Acquire, the table:": {4, 3}, "Acquire, the table again:": {4, 2}, "Loss, the table,": {3, 1}, "Loss, the carrier:": {4, 3},
	} {
		steps := walk(t, title)
		require.Len(t, steps, most.functions, title)
		var files []string
		var called []string
		for i, s := range steps {
			of, ok := calls(t, "../"+s.file)[s.function]
			require.True(t, ok, "%s is not in %s", s.function, s.file)
			_, method, _ := strings.Cut(s.function, ".")
			assert.True(t, i == 0 || slices.Contains(called, method), "nobody before it calls %s", s.function)
			called = append(called, of...)
			if len(files) == 0 || files[len(files)-1] != s.file {
				assert.NotContains(t, files, s.file, "%s goes back to it", s.function)
				files = append(files, s.file)
			}
		}
		assert.LessOrEqual(t, len(files), most.files, title)
	}
}
