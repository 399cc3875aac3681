package advisory_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
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

const module = "github.com/pglatch/pglatch/"

// A block is a part of a function that runs as a whole, as the coverage tool counts it.
type block struct{ file, place string }

// covered runs the program of testdata/path, which takes and releases a lock n times, and returns how often each block ran.
func covered(t *testing.T, program, dsn string, n int) map[block]int {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, strconv.Itoa(n))
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir, "DATABASE_URL="+dsn)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	profile := filepath.Join(t.TempDir(), "profile")
	output, err = exec.CommandContext(t.Context(), "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+profile).CombinedOutput()
	require.NoError(t, err, "%s", output)
	text, err := os.ReadFile(profile)
	require.NoError(t, err)
	counts := make(map[block]int)
	for line := range strings.Lines(string(text)) {
		file, rest, ok := strings.Cut(strings.TrimPrefix(line, module), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) != 3 {
			continue
		}
		count, err := strconv.Atoi(fields[2])
		require.NoError(t, err, line)
		counts[block{file, fields[0]}] = count
	}
	return counts
}

// functionAt names the function of a file that has a line, by Type.method.
func functionAt(t *testing.T, files map[string]*ast.File, fset *token.FileSet, file string, line int) string {
	t.Helper()
	if files[file] == nil {
		parsed, err := parser.ParseFile(fset, filepath.Join("..", file), nil, 0)
		require.NoError(t, err)
		files[file] = parsed
	}
	for _, d := range files[file].Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || line < fset.Position(f.Pos()).Line || line > fset.Position(f.End()).Line {
			continue
		}
		if f.Recv == nil {
			return f.Name.Name
		}
		of := f.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		if g, ok := of.(*ast.IndexExpr); ok {
			of = g.X
		}
		return fmt.Sprint(of, ".", f.Name.Name)
	}
	return fmt.Sprint("line ", line)
}

// pathOfOne returns the functions that run once more, at least, for each further Acquire and Release that nobody contends.
func pathOfOne(t *testing.T) (steps []walkStep) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "path")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-cover", "-covermode=count", "-coverpkg="+module+"...", "-o", program, "./testdata/path").CombinedOutput()
	require.NoError(t, err, "%s", output)
	dsn := pgtest.DSN(t)
	const fewer, more = 50, 150
	few, many := covered(t, program, dsn, fewer), covered(t, program, dsn, more)
	files, fset := map[string]*ast.File{}, token.NewFileSet()
	for b, count := range many {
		if count-few[b] < more-fewer || strings.HasPrefix(b.file, "advisory/testdata/") {
			continue // what a timer does besides is less often
		}
		line, err := strconv.Atoi(b.place[:strings.IndexByte(b.place, '.')])
		require.NoError(t, err)
		if step := (walkStep{functionAt(t, files, fset, b.file, line), b.file}); !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}

// What runs for an Acquire and a Release, counted on a real connection: the limits are what ran when ADR 29 was written.
func TestThePathOfAnAcquireIsMeasured(t *testing.T) {
	t.Parallel()
	steps := pathOfOne(t)
	var files []string
	for _, s := range steps {
		if !slices.Contains(files, s.file) {
			files = append(files, s.file)
		}
	}
	slices.SortFunc(steps, func(a, b walkStep) int { return strings.Compare(a.file+a.function, b.file+b.function) })
	t.Logf("%d functions in %d files: %v", len(steps), len(files), steps)
	assert.LessOrEqual(t, len(steps), 145)
	assert.LessOrEqual(t, len(files), 34)
	assert.NotContains(t, steps, walkStep{"Lock.lose", "advisory/loss.go"}, "the control: no lock was lost")
	for _, title := range []string{"Acquire, the carrier:", "Acquire, the table:", "Acquire, the table again:"} {
		for _, s := range walk(t, title) {
			assert.Contains(t, steps, s, "the walk of ADR 29 leads past what runs")
		}
	}
}
