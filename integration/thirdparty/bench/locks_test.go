package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestLocksMeasuresPglatchBesideTheLoopByHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "locks")
	require.NoError(t, gobuild.Program(t.Context(), "./cmd/locks", program))
	cmd := exec.CommandContext(t.Context(), program, "-quick", "-duration", "20ms", "-out", dir, "-dsn", pgtest.DSN(t),
		"-systems", "handwritten,pglatch,pglatch-mux1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	var report struct {
		Machine map[string]any   `json:"machine"`
		Results []map[string]any `json:"results"`
		Figures []map[string]any `json:"figures"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "latest.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &report))
	for _, fact := range []string{"cpu", "cores", "versions", "date", "load"} {
		assert.Contains(t, report.Machine, fact)
	}
	assert.NotEmpty(t, report.Figures)
	for _, f := range []string{"latest.md", "latest.svg"} {
		assert.FileExists(t, filepath.Join(dir, f))
	}

	measured := map[any]int{}
	for _, r := range report.Results {
		for _, field := range []string{"workload", "system", "workers", "ops_per_s", "p50_us", "p99_us", "connections", "rss_bytes", "ratio_to_handwritten"} {
			assert.Contains(t, r, field)
		}
		if r["not_run"] != nil { // no server with 1,000 connections
			assert.Contains(t, []any{"hold", "beside"}, r["workload"], r)
			assert.NotEqual(t, "pglatch-mux1", r["system"], r)
			continue
		}
		measured[r["workload"]]++
		if r["workload"] != "loss" {
			assert.Positive(t, r["ops_per_s"], r)
			if r["system"] != "handwritten" { // its waits close their connections when they are canceled
				assert.Positive(t, r["connections"], r)
			}
		}
	}
	assert.Equal(t, map[any]int{"random": 12, "hot": 9, "hot-two-processes": 3, "zipf": 3, "beside": 2, "hold": 2, "loss": 3}, measured)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// cells returns the cells of the first Markdown table row that begins with a text.
func cells(t *testing.T, text, begins string) []string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begins) {
			return strings.Split(strings.Trim(line, "| \n"), " | ")[1:]
		}
	}
	require.Fail(t, "there is no such row", begins)
	return nil
}

var throughput = regexp.MustCompile(`^([0-9,]+)(?: \(([0-9.]+)×?\))?$`)

// parse reads a cell: cycles per second, the ratio, and the unit of its last digit, 0 if there is no ratio.
func parse(t *testing.T, cell string) (cycles string, ratio, unit float64) {
	t.Helper()
	m := throughput.FindStringSubmatch(cell)
	require.NotNil(t, m, cell)
	if m[2] == "" {
		return m[1], 0, 0
	}
	ratio, err := strconv.ParseFloat(m[2], 64)
	require.NoError(t, err)
	_, decimals, _ := strings.Cut(m[2], ".")
	return m[1], ratio, math.Pow10(-len(decimals))
}

func TestTheFiguresOfTheDocsAreThoseOfTheResults(t *testing.T) {
	t.Parallel()
	page, results := readText(t, "../../../docs/explanation/performance.md"), readText(t, "results/latest.md")
	columns := []int{0, 2, 3, 5, 7, 8} // those columns of the results that the page shows
	for row, system := range map[string]string{
		"by hand": "by hand: pgxpool", "bsm/redislock": "bsm/redislock", "cirello.io/pglock": "cirello.io/pglock", "etcd concurrency": "etcd concurrency |",
		"**pglatch, a connection per lock**": "**pglatch, dedicated**", "**pglatch, all on 1 connection**": "**pglatch, multiplexed on 1**",
		"**pglatch, all on 2 connections**": "**pglatch, multiplexed on 2**",
	} {
		told, measured := cells(t, page, "| "+row), cells(t, results, "| "+system)
		require.Len(t, told, len(columns), row)
		for i, column := range columns {
			cycles, ratio, unit := parse(t, told[i])
			wantCycles, want, _ := parse(t, measured[column])
			assert.Equal(t, wantCycles, cycles, "%s, column %d", row, i)
			if unit > 0 {
				assert.InDelta(t, want, ratio, unit/2+1e-9, "%s, column %d", row, i)
			}
		}
	}
}

func TestTheRatiosOfTheReadmeAreThoseOfTheResults(t *testing.T) {
	t.Parallel()
	readme, results := readText(t, "../../../README.md"), readText(t, "results/latest.md")
	columns := []int{0, 2, 3, 5}
	for row, system := range map[string]string{
		"bsm/redislock": "bsm/redislock", "etcd concurrency": "etcd concurrency |",
		"**pglatch, a connection per lock**": "**pglatch, dedicated**", "**pglatch, all on one connection**": "**pglatch, multiplexed on 1**",
	} {
		told, measured := cells(t, readme, "| "+row), cells(t, results, "| "+system)
		require.Len(t, told, len(columns), row)
		for i, column := range columns {
			_, ratio, unit := parse(t, "0 ("+told[i]+")")
			_, want, _ := parse(t, measured[column])
			assert.InDelta(t, want, ratio, unit/2+1e-9, "%s, column %d", row, i)
		}
	}
	told, measured := cells(t, readme, "| by hand"), cells(t, results, "| by hand: pgxpool")
	for i, column := range columns {
		cycles, _, _ := parse(t, told[i])
		want, _, _ := parse(t, measured[column])
		assert.Equal(t, want, cycles, "by hand, column %d", i)
	}
}

func TestTheWordsOfTheDocsAreThoseOfTheResults(t *testing.T) {
	t.Parallel()
	page, results := strings.Join(strings.Fields(readText(t, "../../../docs/explanation/performance.md")), " "), readText(t, "results/latest.md")
	ratios := func(system string) (all []float64) {
		for _, cell := range cells(t, results, "| **"+system) {
			_, ratio, _ := parse(t, cell)
			all = append(all, ratio)
		}
		return all
	}
	says := func(words string) {
		assert.True(t, strings.Contains(page, words), "the page does not say %q", words) // prints the missing words, not the whole page
	}
	dedicated, one := ratios("pglatch, dedicated"), ratios("pglatch, multiplexed on 1")
	least, most := dedicated[0], dedicated[0]
	for _, ratio := range dedicated[:4] { // those with random keys
		least, most = min(least, ratio), max(most, ratio)
	}
	says(fmt.Sprintf("pglatch makes %.1f to %.1f times as many cycles as the loop", least, most))
	says(fmt.Sprintf("On one connection, the ratio is %.1f with one worker, %.1f with 8 and %.1f with 64", one[0], one[1], one[2]))
	for _, ratio := range append(dedicated[4:8:8], one[4:8]...) {
		assert.InDelta(t, 75, ratio, 10, "65 to 84 times as fast where many wait")
	}
	words := []string{"none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"}
	short := strings.Count(results, "| SHORT")
	require.Less(t, short, len(words))
	wanted := short + strings.Count(results, "| PASS")
	says(fmt.Sprintf("Of our %d target figures, this run **misses %s**", wanted, words[short]))
	readme := strings.Join(strings.Fields(readText(t, "../../../README.md")), " ")
	assert.True(t, strings.Contains(readme, fmt.Sprintf("missed targets (%d of %d)", short, wanted)), "README says another number")
}
