package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
