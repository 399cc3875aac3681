package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// surfaces are how many top-level names and methods packages may export. A new one takes the
// place of an old one, or raises the number on purpose.
var surfaces = map[string]surface{
	"advisory": {names: 40, methods: 28},
	"leader":   {names: 36, methods: 22},
}

type surface struct{ names, methods int }

func TestTheExportedSurfaceDoesNotGrow(t *testing.T) {
	t.Parallel()
	for dir, limit := range surfaces {
		paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		sources := make(map[string]string, len(paths))
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			sources[path] = string(text)
		}
		got := surfaceOf(t, sources)
		assert.LessOrEqual(t, got.names, limit.names, "top-level names of %s", dir)
		assert.LessOrEqual(t, got.methods, limit.methods, "methods of %s", dir)
	}
}

// The control: what is counted.
func TestTheSurfaceCountsWhatIsExported(t *testing.T) {
	t.Parallel()
	const source = `package p

const A, b = 1, 2

type kind int

const C kind = 1

var D, E int

type F struct{ g }

type g struct{}

func (*F) H() {}
func (F) i()  {}
func (g) J()  {}

func NewF() *F { return nil }
func k()       {}
`
	assert.Equal(t, surface{names: 6, methods: 2}, surfaceOf(t, map[string]string{"p.go": source}), "A, C, D, E, F, NewF; F.H, F.J")
}

// surfaceOf counts what the documentation of a package shows.
func surfaceOf(t *testing.T, sources map[string]string) (s surface) {
	t.Helper()
	set := token.NewFileSet()
	files := make([]*ast.File, 0, len(sources))
	for path, text := range sources {
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(set, files, "p")
	require.NoError(t, err)
	values, funcs := append(p.Consts, p.Vars...), len(p.Funcs)
	for _, typ := range p.Types {
		values = append(append(values, typ.Consts...), typ.Vars...)
		funcs += len(typ.Funcs)
		s.methods += len(typ.Methods)
	}
	s.names = funcs + len(p.Types)
	for _, value := range values {
		for _, name := range value.Names {
			if token.IsExported(name) {
				s.names++
			}
		}
	}
	return s
}
