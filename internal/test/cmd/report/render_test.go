package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/tally"
)

var update = flag.Bool("update", false, "write testdata/report.md")

func example() run {
	const election, history = module + "integration/election", module + "integration/history"
	return run{
		facts: [][2]string{{"commit", "0123456789ab"}, {"load at the start", "1.50 1.20 0.90"}},
		lines: []tally.Line{
			{Package: history, Test: "TestNeverTwoHolders/one", Count: "acquisitions", N: 12000},
			{Package: history, Test: "TestNeverTwoHolders/one", Count: "acquisitions", N: 345},
			{Package: history, Test: "TestNeverTwoHolders/one", Count: "lost", N: 7},
			{Package: history, Test: "TestNeverTwoHolders/one", Fault: &tally.Fault{Name: "session ended", Times: 60, Overlap: new(time.Duration(1234567))}},
			{Package: election, Test: "TestOneLeads", Count: "terms", N: 9},
			{Package: election, Test: "TestOneLeads", Fault: &tally.Fault{Name: "killed", Times: 4, Freed: 2345678901, Bound: 3 * time.Second, Overlap: new(time.Duration(0))}},
			{Package: election, Test: "TestOneLeads", Fault: &tally.Fault{Name: "session ended", Times: 1}},
			{Package: election, Test: "TestOneLeads", Fault: &tally.Fault{Name: "killed", Times: 3, Freed: 2456789012, Bound: 3 * time.Second}},
			{Package: election, Test: "TestOneLeads", Fault: &tally.Fault{Name: "session ended", Times: 1, Overlap: new(time.Duration(2345678))}},
			{Package: election, Test: "TestWithoutContexts", Control: "2 operations | too late\nsuch as"},
		},
		results: []result{
			{"pass", history, "TestNeverTwoHolders/one", 61.4},
			{"pass", election, "TestOneLeads", 12},
			{"pass", election, "TestOneLeads", 13},
			{"pass", election, "TestWithoutContexts", 3},
		},
	}
}

func TestAReportHasOperationsFaultsWindowsAndControls(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, example().render(&b))
	golden := filepath.Join("testdata", "report.md")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "go test -update writes it")
	assert.Equal(t, string(want), b.String())
}

func TestAReportBeginsWithWhatFailed(t *testing.T) {
	t.Parallel()
	r := example()
	r.results[1].outcome = "fail"
	var b strings.Builder
	require.NoError(t, r.render(&b))
	assert.Contains(t, b.String(), "**Tests failed**, beside 3 passes:\n\n- `integration/election.TestOneLeads`: FAILED, passed, 25 s\n")
	assert.Contains(t, b.String(), "| `integration/election.TestOneLeads` | FAILED, passed, 25 s | 9 terms |")
}

func TestAResultIsReadAsGotestWritesIt(t *testing.T) {
	t.Parallel()
	r, err := parseResult("pass\tp\tTestA/b\t1.5\n")
	require.NoError(t, err)
	assert.Equal(t, result{"pass", "p", "TestA/b", 1.5}, r)
	_, err = parseResult("pass\tp\n")
	require.ErrorContains(t, err, "no line")
}

func TestNoRoundBeginsThatWouldProbablyEndTooLate(t *testing.T) {
	t.Parallel()
	assert.True(t, fits(10*time.Minute, 1, 20*time.Minute))
	assert.False(t, fits(11*time.Minute, 1, 20*time.Minute))
	assert.True(t, fits(21*time.Minute, 7, 24*time.Minute))
	assert.False(t, fits(time.Minute, 1, 0), "without a limit there is one round")
}

func TestTheReportOfDataCanBeWrittenAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		factsFile:   "commit\t0123456789ab\n",
		tallyFile:   `{"package":"p","test":"TestA","count":"terms","n":7}` + "\n",
		resultsFile: "pass\tp\tTestA\t1.5\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out := filepath.Join(dir, "new", "report.md")
	require.NoError(t, order{again: true, data: dir, out: out}.report(t.Context()))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, want := range []string{"| commit | 0123456789ab |", "| `p.TestA` | passed, 2 s | 7 terms |"} {
		assert.Contains(t, string(text), want)
	}
}
