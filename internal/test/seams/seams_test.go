package seams_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/seams"
)

const root = "../../.."

func TestEachCellOfTheTableNamesTestsThatExistAndRun(t *testing.T) {
	t.Parallel()
	file, err := os.Open(filepath.Join(root, "docs", "reference", "seams.md"))
	require.NoError(t, err)
	defer file.Close()
	features, cells, err := seams.Read(file)
	require.NoError(t, err)
	require.Greater(t, len(features), 10)
	assert.Empty(t, seams.Missing(features, cells), "a feature has a row for each surrounding, and for each feature below it")
	tests, err := seams.Tests(root)
	require.NoError(t, err)
	require.Greater(t, len(tests), 1000)
	for _, c := range cells {
		for _, name := range c.Tests {
			skipped, there := tests[name]
			assert.True(t, there, "%s × %s: there is no test %s", c.Feature, c.Meets, name)
			assert.False(t, skipped, "%s × %s: %s is always skipped", c.Feature, c.Meets, name)
		}
	}
}

const small = "## A\n| meets | held by |\n|---|---|\n| poolers | `a/b.TestX`, `c.TestScript/y` |\n| B | cannot meet: `a.TestZ` |\n\n## B\n"

func TestATableIsReadAndItsGapsAreFound(t *testing.T) {
	t.Parallel()
	features, cells, err := seams.Read(strings.NewReader(small))
	require.NoError(t, err)
	assert.Equal(t, []string{"A", "B"}, features)
	assert.Equal(t, []seams.Cell{
		{Feature: "A", Meets: "poolers", Tests: []string{"a/b.TestX", "c.TestScript/y"}},
		{Feature: "A", Meets: "B", Cannot: true, Tests: []string{"a.TestZ"}},
	}, cells)
	missing := seams.Missing(features, cells)
	assert.Len(t, missing, 2*len(seams.Surroundings)-1)
	assert.Contains(t, missing, "A × standby: 0 rows")
	for _, bad := range []string{"", "to do", "TestX", "`a.TestX` and more", "cannot meet"} {
		_, _, err := seams.Read(strings.NewReader("## A\n| standby | " + bad + " |\n"))
		assert.ErrorContains(t, err, "A × standby", bad)
	}
}

func TestATestThatIsAlwaysSkippedIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte("//go:build integration\n\npackage x\n\nimport \"testing\"\n\n"+
		"func TestSkipped(t *testing.T) { t.Log(); t.Skip() }\n\nfunc TestRuns(t *testing.T) { if testing.Short() { t.Skip() } }\n"), 0o600))
	scripts := filepath.Join(dir, "cmd", "testdata", "script")
	require.NoError(t, os.MkdirAll(scripts, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(scripts, "run.txtar"), []byte("# It runs.\n[short] skip\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(scripts, "rest.txtar"), []byte("# It never runs.\nskip\n"), 0o600))
	tests, err := seams.Tests(dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"..TestSkipped": true, "..TestRuns": false, "cmd.TestScript/run": false, "cmd.TestScript/rest": true}, tests)
}

func TestAResultProvesATestThatPassed(t *testing.T) {
	t.Parallel()
	_, cells, err := seams.Read(strings.NewReader(small))
	require.NoError(t, err)
	const prefix = "\tgithub.com/pglatch/pglatch/"
	tests, err := seams.Unproved(cells, strings.NewReader("pass"+prefix+"a/b\tTestX\t0.1\nskip"+prefix+"a/b\tTestX\t0\nskip"+prefix+"c\tTestScript/y\t0\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"a.TestZ (not run)", "c.TestScript/y (skip)"}, tests)
	_, err = seams.Unproved(cells, strings.NewReader("?"))
	require.Error(t, err)
}
