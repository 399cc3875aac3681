package tally_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/tally"
)

func TestWhatIsCountedIsReadAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report")
	t.Setenv(tally.Variable, name)
	tally.Count(t, "operations", 7)
	tally.Faults(t, tally.Fault{Name: "killed", Times: 2, Freed: time.Second})
	tally.Control(t, "%d stale writes", 3)
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	lines, err := tally.Read(file)
	require.NoError(t, err)
	const here = "github.com/pglatch/pglatch/internal/test/tally"
	assert.Equal(t, []tally.Line{
		{Package: here, Test: t.Name(), Count: "operations", N: 7},
		{Package: here, Test: t.Name(), Fault: &tally.Fault{Name: "killed", Times: 2, Freed: time.Second}},
		{Package: here, Test: t.Name(), Control: "3 stale writes"},
	}, lines)

	_, err = tally.Read(strings.NewReader("?\n"))
	require.ErrorContains(t, err, "?")
}

func TestWithoutAFileNothingIsWritten(t *testing.T) {
	t.Setenv(tally.Variable, "")
	tally.Count(t, "operations", 7)
	assert.False(t, t.Failed())
}
