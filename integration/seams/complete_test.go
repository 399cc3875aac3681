//go:build integration

package seams

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// driven are the packages whose functions the entries call, and the name by which this package imports them.
var driven = map[string]string{
	"advisory": "advisory", "leader": "leader", "leader/postgres": "leaderpg", "leader/shards": "shards", "leader/shards/postgres": "shardspg",
	"lease": "lease", "lease/postgres": "leasepg", "lease/leasehttp": "leasehttp", "once": "once", "once/postgres": "oncepg",
	"turns":   "turns",
	"monitor": "monitor", "introspect": "introspect", "adapters/mutex": "mutex",
}

// behind are methods that other entries call: an Elector or a node those of its backend, a Runner or a lock server those of its store.
var behind = []string{
	"leaderpg.Backend.TryAcquire", "leaderpg.Backend.Renew", "leaderpg.Backend.Release", "leaderpg.Backend.Wait", "leaderpg.Backend.Leader",
	"leaderpg.Backend.Observe", "leaderpg.Backend.Contested", "shardspg.Backend.Open", "shardspg.Backend.Observe",
	"oncepg.Store.Claim", "oncepg.Store.Renew", "oncepg.Store.End", "oncepg.Store.Look", "leasepg.Store.Sweep", "leasepg.Store.Listen",
	"turns.Turn.CommitSQL", // as Commit; see package turns
}

// A function or method that takes a context and can fail is called by an entry, or behind one. Methods are
// told apart by their names only.
func TestEachCallIsAnEntry(t *testing.T) {
	here, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	called := map[string]bool{}
	for _, file := range here {
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				called[s.Sel.Name] = true
				if of, ok := s.X.(*ast.Ident); ok {
					called[of.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	for dir, name := range driven {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
		require.NoError(t, err)
		found := map[string]string{}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				maps.Copy(found, fallible(parse(t, file), name))
			}
		}
		require.NotEmpty(t, found, "%s has functions", dir)
		for full, short := range found {
			if !slices.Contains(behind, full) {
				assert.True(t, called[short], "%s: make it an entry, or name it in behind", full)
			}
		}
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
	require.NoError(t, err)
	return f
}

// fallible returns the exported functions and methods that take a context first and return an error, and how a
// call of each is written: "advisory.Open", and "Acquire" for a method.
func fallible(f *ast.File, pkg string) map[string]string {
	found := map[string]string{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !fn.Name.IsExported() || !takesContext(fn.Type) || !fails(fn.Type) {
			continue
		}
		full := pkg + "." + fn.Name.Name
		if fn.Recv == nil {
			found[full] = full
			continue
		}
		star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue // a value, such as options, has the functions of its package
		}
		if of, ok := star.X.(*ast.Ident); ok && of.IsExported() {
			found[pkg+"."+of.Name+"."+fn.Name.Name] = fn.Name.Name
		}
	}
	return found
}

func takesContext(f *ast.FuncType) bool {
	if len(f.Params.List) == 0 {
		return false
	}
	s, ok := f.Params.List[0].Type.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Context"
}

// fails reports whether a function returns an error, by itself or with each element of a sequence.
func fails(f *ast.FuncType) (yes bool) {
	if f.Results == nil {
		return false
	}
	ast.Inspect(f.Results, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		yes = yes || ok && id.Name == "error"
		return true
	})
	return yes
}
