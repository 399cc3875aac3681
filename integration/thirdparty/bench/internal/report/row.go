// Package report turns measurements into a table, a JSON file, a plot and a verdict on the
// goals, with one source file for each.
package report

import (
	"slices"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
)

// The workloads.
const (
	Random       = "random"
	Hot          = "hot"
	TwoProcesses = "hot-two-processes"
	Zipf         = "zipf"
	Hold         = "hold"
	Loss         = "loss"
	Beside       = "beside" // other locks are held meanwhile
)

// A Row is the result of one system under one workload. Numbers are medians of the rounds.
type Row struct {
	Workload string `json:"workload"`
	System   string `json:"system"`
	Workers  int    `json:"workers"`         // in all processes
	Locks    int    `json:"locks,omitempty"` // held at one time, for hold, loss and beside

	// OpsPerS is cycles per second; for hold, locks taken per second.
	OpsPerS float64 `json:"ops_per_s"`
	// Latencies measure a cycle for random and hot keys, the wait for the lock in the other
	// loads, and the time until a holder knew for loss.
	P50US  float64 `json:"p50_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"` // of all rounds

	Connections  int     `json:"connections"`
	RSSBytes     int64   `json:"rss_bytes"`        // of the client's processes
	ServerBytes  int64   `json:"server_rss_bytes"` // anonymous memory of the server's processes for it
	HeapPerLock  int64   `json:"heap_bytes_per_lock,omitempty"`
	TakenSeconds float64 `json:"taken_seconds,omitempty"` // to take all locks, for hold

	// ReleasedSeconds is the time to release all locks, for hold; 0 = not measured.
	ReleasedSeconds float64 `json:"released_seconds,omitempty"`

	// Ratio is the median of the rounds' ratios to the hand-written loop; 0 = none.
	Ratio float64 `json:"ratio_to_handwritten"`
	// Shares are the processes' shares of the grants.
	Shares []float64 `json:"shares,omitempty"`

	Rounds    []float64 `json:"rounds_ops_per_s,omitempty"`
	RoundsP99 []float64 `json:"rounds_p99_us,omitempty"`

	// NotRun is the reason why there are no numbers. Failed means that it should have run.
	NotRun string `json:"not_run,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// Rows are all measurements.
type Rows []Row

// find returns the row of a system; ok reports whether it was run.
func (rows Rows) find(workload, system string, workers, locks int) (r Row, ok bool) {
	i := slices.IndexFunc(rows, func(r Row) bool {
		return r.Workload == workload && r.System == system && (workers == 0 || r.Workers == workers) && r.Locks == locks
	})
	if i < 0 {
		return Row{}, false
	}
	return rows[i], rows[i].NotRun == ""
}

// Compare sets the ratios to the system base.
func (rows Rows) Compare(base string) {
	for i, r := range rows {
		if b, ok := rows.find(r.Workload, base, r.Workers, r.Locks); ok && r.NotRun == "" {
			rows[i].Ratio = ratio(r.Rounds, b.Rounds)
		}
	}
}

// ratio returns the median of the rounds' ratios, or 0 if there is none.
func ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return gauge.Median(ratios)
}
