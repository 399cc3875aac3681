package report_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
)

// rows returns a run whose machine was slow in the second of three rounds.
func rows() report.Rows {
	return report.Rows{
		{Workload: report.Random, System: system.HandWritten, Workers: 64, OpsPerS: 100, Rounds: []float64{100, 10, 110}},
		{Workload: report.Random, System: system.Multiplexed1, Workers: 64, OpsPerS: 900, Rounds: []float64{900, 90, 880}},
		{Workload: report.Random, System: system.PGBench, Workers: 64, NotRun: "there is no <pgbench>"},
		{Workload: report.Zipf, System: system.HandWritten, Workers: 64, OpsPerS: 10, Rounds: []float64{10}, RoundsP99: []float64{100}},
		{Workload: report.Zipf, System: system.Multiplexed1, Workers: 64, OpsPerS: 20, Rounds: []float64{20}, RoundsP99: []float64{90}},
		{Workload: report.Hold, System: system.Multiplexed1, Workers: 512, Locks: 10_000, TakenSeconds: 0.5, Connections: 3, HeapPerLock: 1023},
	}
}

func TestRatiosAreMediansOverTheRounds(t *testing.T) {
	t.Parallel()
	all := rows()
	all.Compare(system.HandWritten)
	assert.InDelta(t, 1, all[0].Ratio, 1e-9)
	assert.InDelta(t, 9, all[1].Ratio, 1e-9)
	assert.Zero(t, all[2].Ratio)
	assert.Zero(t, all[5].Ratio, "nobody to compare with")
}

func TestAFigureIsReachedMissedOrNotMeasured(t *testing.T) {
	t.Parallel()
	verdicts := map[string]report.Figure{}
	for _, f := range rows().Judge() {
		verdicts[f.Text] = f
	}
	for text, want := range map[string]struct{ measured, pass bool }{
		"random keys, 64 workers, × handwritten":         {true, true},
		"random keys, 64 workers, × pgbench":             {false, false},
		"random keys, 512 workers, × handwritten":        {false, false},
		"Zipf mix, × handwritten":                        {true, false},
		"Zipf mix, p99 of the wait, × handwritten":       {true, true},
		"10000 locks held, seconds to take them":         {true, true},
		"10000 locks held, connections":                  {true, false},
		"10000 locks held, bytes of heap for each":       {true, true},
		"100000 locks held, seconds to take them":        {false, false},
		"one hot key, two processes, smaller share in %": {false, false},
	} {
		f, ok := verdicts[text]
		require.True(t, ok, text)
		assert.Equal(t, want.measured, f.Measured, text)
		assert.Equal(t, want.pass, f.Pass, text)
	}
}

func TestAReportIsWrittenInThreeForms(t *testing.T) {
	t.Parallel()
	r := &report.Report{
		Rows: rows(), Machine: report.Machine{CPU: "a < b & c", Date: "2026-01-02T03:04:05Z"},
		Order:  []string{system.HandWritten, system.Multiplexed1, system.PGBench},
		Titles: map[string]string{system.HandWritten: "by hand", system.Multiplexed1: "ours", system.PGBench: "pgbench"},
	}
	r.Figures = r.Rows.Judge()
	dir := filepath.Join(t.TempDir(), "results")
	require.NoError(t, r.Write(dir))

	text, err := os.ReadFile(filepath.Join(dir, "latest.json"))
	require.NoError(t, err)
	var back report.Report
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, r.Rows, back.Rows)

	markdown, err := os.ReadFile(filepath.Join(dir, "latest.md"))
	require.NoError(t, err)
	assert.Contains(t, string(markdown), "NOT RUN: pgbench: there is no <pgbench> (random 64)")
	assert.Contains(t, string(markdown), "SHORT: 67 % of the goal")
	assert.Contains(t, string(markdown), "| PASS |")

	svg, err := os.ReadFile(filepath.Join(dir, "latest.svg"))
	require.NoError(t, err)
	tokens := xml.NewDecoder(strings.NewReader(string(svg)))
	for err == nil {
		_, err = tokens.Token()
	}
	require.True(t, errors.Is(err, io.EOF), "%v", err)
	assert.Contains(t, string(svg), "prefers-color-scheme: dark")
}
