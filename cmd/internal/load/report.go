package load

import (
	"cmp"
	"time"
)

// A Report is the result of a run.
type Report struct {
	Elapsed    time.Duration
	Operations []Measured
	Counts     Counts
	Violations []Violation
	Err        error // one of the errors of unknown outcome
}

// Measured are the measurements of one operation.
type Measured struct {
	Operation              string
	Count                  int
	PerSecond              float64
	P50, P95, P99, Longest time.Duration
}

// Counts are the totals of all clients.
type Counts struct {
	Held          int `json:"held"`
	Busy          int `json:"busy"`
	Failed        int `json:"failed"`
	Expired       int `json:"expired"`
	Writes        int `json:"fenced_writes_accepted"`
	StaleWrites   int `json:"stale_writes_refused"`
	StaleRenewals int `json:"stale_renewals_refused"`
	StaleReleases int `json:"stale_releases_refused"`
}

func (l *Load) report(elapsed time.Duration) Report {
	r := Report{Elapsed: elapsed, Violations: l.checker.found()}
	var latencies [operations]histogram
	var counts [counts]int
	for _, m := range l.meters {
		for i := range latencies {
			latencies[i].merge(&m.latencies[i])
		}
		for i, n := range m.counts {
			counts[i] += n
		}
		r.Err = cmp.Or(r.Err, m.err)
	}
	for o, name := range [...]string{"acquire", "renew", "release"} {
		h := &latencies[o]
		r.Operations = append(r.Operations, Measured{
			Operation: name, Count: h.count, PerSecond: float64(h.count) / elapsed.Seconds(),
			P50: h.quantile(0.50), P95: h.quantile(0.95), P99: h.quantile(0.99), Longest: h.longest,
		})
	}
	r.Counts = Counts{
		counts[Held], counts[Busy], counts[Failed], counts[Expired],
		counts[Writes], counts[StaleWrites], counts[StaleRenewals], counts[StaleReleases],
	}
	return r
}
