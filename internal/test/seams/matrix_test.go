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
