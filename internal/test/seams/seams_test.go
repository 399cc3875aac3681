package seams_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/seams"
)

const root = "../../.."

func TestEachCellOfTheTableNamesTestsThatExistAndRun(t *testing.T) {
	t.Parallel()
	tests, err := seams.Tests(root)
	require.NoError(t, err)
	require.Greater(t, len(tests), 1000)
	for _, table := range seams.Tables {
		features, cells, err := table.ReadPage(root)
		require.NoError(t, err, table.Page)
		require.Greater(t, len(features), 5, table.Page)
		assert.Empty(t, table.Missing(features, cells), "%s: a section has each row once", table.Page)
		for _, c := range cells {
			inside := false
			for _, name := range slices.Concat(c.Tests, c.Controls) {
				found, there := tests[name]
				assert.True(t, there, "%s, %s × %s: there is no test %s", table.Page, c.Feature, c.Meets, name)
				assert.False(t, found.Skipped, "%s, %s × %s: %s is always skipped", table.Page, c.Feature, c.Meets, name)
				inside = inside || found.Control
			}
			assert.True(t, inside || !c.Inside, "%s, %s × %s: no test says that it has a control", table.Page, c.Feature, c.Meets)
		}
	}
}

func TestEachTestOfTheTrackRecordExists(t *testing.T) {
	t.Parallel()
	tests, err := seams.Tests(root)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "track-record.md"))
	require.NoError(t, err)
	rows := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != 6 || fields[0] == "| fault" {
			continue
		}
		rows++
		names := seams.NamesIn(fields[4])
		assert.NotEmpty(t, names, "no test: %s", line)
		for _, name := range names {
			found, there := tests[name]
			assert.True(t, there && !found.Skipped, "there is no test %s, or it is always skipped", name)
		}
	}
	assert.Greater(t, rows, 100)
}

var combinations, faults = seams.Tables[0], seams.Tables[1]

const small = "## A\n| meets | held by |\n|---|---|\n| poolers | `a/b.TestX`, `c.TestScript/y` |\n| B | cannot meet: `a.TestZ` |\n\n## B\n"

func TestATableIsReadAndItsGapsAreFound(t *testing.T) {
	t.Parallel()
	features, cells, err := combinations.Read(strings.NewReader(small))
	require.NoError(t, err)
	assert.Equal(t, []string{"A", "B"}, features)
	assert.Equal(t, []seams.Cell{
		{Feature: "A", Meets: "poolers", Tests: []string{"a/b.TestX", "c.TestScript/y"}},
		{Feature: "A", Meets: "B", Cannot: true, Tests: []string{"a.TestZ"}},
	}, cells)
	missing := combinations.Missing(features, cells)
	assert.Len(t, missing, 2*len(combinations.Rows)-1)
	assert.Contains(t, missing, "A × standby: 0 rows")
	for _, bad := range []string{"", "to do", "TestX", "`a.TestX` and more", "cannot meet"} {
		_, _, err := combinations.Read(strings.NewReader("## A\n| standby | " + bad + " |\n"))
		assert.ErrorContains(t, err, "A × standby", bad)
	}
}

func TestARowOfFaultsNamesItsControlOrSaysWhyThereIsNone(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]seams.Cell{
		"`a.TestX` | `b.TestY`":              {Tests: []string{"a.TestX"}, Controls: []string{"b.TestY"}},
		"`a.TestX` | in the test":            {Tests: []string{"a.TestX"}, Inside: true},
		"`a.TestX` | in the test, `b.TestY`": {Tests: []string{"a.TestX"}, Controls: []string{"b.TestY"}, Inside: true},
		"`a.TestX` | no control: it is one":  {Tests: []string{"a.TestX"}},
		"no test: nobody knows how |":        {},
	} {
		_, cells, err := faults.Read(strings.NewReader("## A\n| fault | held by | control |\n|---|---|---|\n| killed process | " + row + " |\n"))
		require.NoError(t, err, row)
		want.Feature, want.Meets = "A", "killed process"
		assert.Equal(t, []seams.Cell{want}, cells, row)
	}
	for _, bad := range []string{"`a.TestX` |", "`a.TestX` | none", "no test: | ", "no test | ", "no test: x | `a.TestX`"} {
		_, _, err := faults.Read(strings.NewReader("## A\n| killed process | " + bad + " |\n"))
		assert.ErrorContains(t, err, "A × killed process", bad)
	}
}

func TestATestThatIsAlwaysSkippedIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte("//go:build integration\n\npackage x\n\nimport \"testing\"\n\n"+
		"func TestSkipped(t *testing.T) { t.Log(); t.Skip() }\n\n// The control.\nfunc TestRuns(t *testing.T) { if testing.Short() { t.Skip() } }\n"), 0o600))
	scripts := filepath.Join(dir, "cmd", "testdata", "script")
	require.NoError(t, os.MkdirAll(scripts, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(scripts, "run.txtar"), []byte("# It runs.\n[short] skip\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(scripts, "rest.txtar"), []byte("# It never runs.\nskip\n"), 0o600))
	tests, err := seams.Tests(dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]seams.Test{"..TestSkipped": {Skipped: true}, "..TestRuns": {Control: true}, "cmd.TestScript/run": {}, "cmd.TestScript/rest": {Skipped: true}}, tests)
}

func TestAResultProvesATestThatPassed(t *testing.T) {
	t.Parallel()
	_, cells, err := combinations.Read(strings.NewReader(small))
	require.NoError(t, err)
	const prefix = "\tgithub.com/pglatch/pglatch/"
	tests, err := seams.Unproved(cells, strings.NewReader("pass"+prefix+"a/b\tTestX\t0.1\nskip"+prefix+"a/b\tTestX\t0\nskip"+prefix+"c\tTestScript/y\t0\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a.TestZ (not run)", "c.TestScript/y (skip)"}, tests)
	cells[0].Controls = []string{"b.TestControl"}
	tests, err = seams.Unproved(cells[:1], strings.NewReader("pass"+prefix+"a/b\tTestX\t0.1\npass"+prefix+"c\tTestScript/y\t0\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"b.TestControl (not run)"}, tests)
	_, err = seams.Unproved(cells, strings.NewReader("?"))
	require.Error(t, err)
}

func TestTheMatrixSaysInWhichModesAndVersionsTestsAndControlsRun(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	for _, product := range []string{"Mutexes", "Leases"} {
		page.WriteString("## " + product + "\n")
		for _, fault := range faults.Rows {
			row := "no test: not tried | "
			switch product + " " + fault {
			case "Mutexes killed process":
				row = "`a/sql.TestBoth`, `a/sql.TestSeveral` | `a/other.TestOne`"
			case "Mutexes stopped process":
				row = "`a/other.TestOne` | no control: there is none"
			case "Leases killed process":
				row = "`a/other.TestOne`, `a/pure.TestPure` | in the test"
			case "Leases stopped process":
				row = "`a/pure.TestPure` | in the test"
			}
			page.WriteString("| " + fault + " | " + row + " |\n")
		}
	}
	root := t.TempDir()
	const server = "import _ \"github.com/pglatch/pglatch/internal/test/pgtest\"\n"
	for name, text := range map[string]string{
		"docs/reference/faults.md": page.String(),
		".ci/run":                  "step env PGLATCH_PG_VERSION=18 make test\nstep make test-servers ON=14 # the oldest\n",
		"Makefile":                 "SERVED := ./namespace ./a/sql/...\n",
		"a/sql/a_test.go":          "package sql\n" + server + "func TestBoth() { inBothModes(t) }\nfunc TestSeveral() { _ = c.LocksPerConn }\n",
		"a/other/a_test.go":        "package other\n" + server + "func TestOne() {}\n",
		"a/pure/a_test.go":         "package pure\n// TestPure has a control.\nfunc TestPure() {}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	header, rows, err := seams.Matrix(root)
	require.NoError(t, err)
	assert.Equal(t, []string{"fault", "mutexes, one lock per connection", "mutexes, several", "leases"}, header)
	assert.Equal(t, [][]string{
		{"killed process", "(14), 18", "(14), (18)", "18"},
		{"stopped process", "(18)", "none", "any"},
		{"suspended machine", "none", "none", "none"},
	}, rows[:3])
	require.NoError(t, os.WriteFile(filepath.Join(root, ".ci", "run"), []byte("step make test\n"), 0o600))
	_, _, err = seams.Matrix(root)
	require.ErrorContains(t, err, "are not there")
}
