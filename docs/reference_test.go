package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
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

var (
	reference = regexp.MustCompile(`\[[^\]]+\]\[([a-z0-9-]+)\]`)
	defined   = regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: (\S+)$`)
)

// The comparison has three tables of promises, with the same rows. A cell without a source is "not stated" or "not applicable".
func TestEveryCellOfTheComparisonHasASource(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("comparison.md")
	require.NoError(t, err)
	text := string(content)
	tables := 0
	var promises []string
	for _, part := range strings.Split(text, "\n## ")[1:] {
		_, body, _ := strings.Cut(part, "\n")
		var rows [][]string
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "| ") {
				rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | "))
			}
		}
		if len(rows) < 2 || rows[1][0] != "works behind a transaction pooler" { // another table, or none
			continue
		}
		tables++
		var now []string
		for _, row := range rows[1:] {
			now = append(now, row[0])
			assert.Len(t, row, len(rows[0])+1, row[0]) // the first cell of the head is empty
			for _, cell := range row[1:] {
				if cell != "not stated" && cell != "not applicable" {
					assert.Regexp(t, `\]\(|\]\[`, cell, row[0])
				}
			}
		}
		if promises == nil {
			promises = now
		}
		assert.Equal(t, promises, now, "each table has the same rows")
	}
	assert.Equal(t, 3, tables)

	addresses := map[string]string{}
	for _, m := range defined.FindAllStringSubmatch(text, -1) {
		assert.Empty(t, addresses[m[1]], "%s is defined twice", m[1])
		addresses[m[1]] = m[2]
		if !strings.Contains(m[2], "://") {
			_, err := os.Stat(m[2])
			assert.NoError(t, err, m[1])
		}
	}
	used := map[string]bool{}
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
		assert.Contains(t, addresses, m[1])
	}
	for name := range addresses {
		assert.True(t, used[name], "no cell refers to %s", name)
	}
}

func TestTheComparisonIsShort(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("comparison.md")
	require.NoError(t, err)
	words := 0
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "|") && !defined.MatchString(strings.TrimSpace(line)) {
			words += len(strings.Fields(line))
		}
	}
	assert.LessOrEqual(t, words, 1200, "words of prose, without tables")
}

// People try the examples of all pages in one database: no two have one key by accident.
func TestTheExamplesHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	inGo := regexp.MustCompile(`namespace\.Must\((\d+), "([a-z-]+)"\)`)
	inShell := regexp.MustCompile(`(?:NAMESPACES=|,|shards [a-z]+ )([a-z-]+)=(\d+)\b`)
	elections := regexp.MustCompile(`(?:namespace\.Pair\(|pglatch leader [a-z]+ )(\d+)(?:, |:)\d+`)
	names, leaders := map[string]string{}, map[string]string{}
	for _, p := range pages(t) {
		if filepath.Dir(p.name) == "docs/coming-from" { // programs of other people
			continue
		}
		define := func(number, name string) {
			if other, known := names[number]; known {
				assert.Equal(t, other, name, "%s: namespace %s has two names", p.name, number)
			}
			names[number] = name
		}
		for _, found := range inGo.FindAllStringSubmatch(p.text, -1) {
			define(found[1], found[2])
		}
		for _, found := range inShell.FindAllStringSubmatch(p.text, -1) {
			define(found[2], found[1])
		}
		for _, found := range elections.FindAllStringSubmatch(p.text, -1) {
			leaders[found[1]] = p.name
		}
	}
	assert.Subset(t, names, map[string]string{"1": "agent", "2": "order", "7": "tenant"}, "the control")
	assert.NotEmpty(t, leaders, "the control")
	for number, page := range leaders {
		assert.NotContains(t, names, number, "%s: an election has the key of an entity", page)
	}
}
