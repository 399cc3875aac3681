package load

import "time"

// A Report is the result of a run. Its times are in milliseconds.
type Report struct {
	Elapsed    float64     `json:"elapsed_ms"`
	Operations []Measured  `json:"operations"`
	Counts     Counts      `json:"counts"`
	Violations []Violation `json:"violations"`
	Err        error       `json:"-"` // one of the errors of unknown outcome
}

// Measured are the measurements of one operation.
type Measured struct {
	Operation string  `json:"operation"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
	Longest   float64 `json:"max_ms"`
}

func (l *Load) report(elapsed time.Duration) Report {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	r := Report{Elapsed: ms(elapsed), Counts: l.meter.counts, Violations: append([]Violation{}, l.checker.found()...), Err: l.meter.err}
	for o, name := range [...]string{"acquire", "renew", "release"} {
		h := &l.meter.latencies[o]
		r.Operations = append(r.Operations, Measured{
			Operation: name, Count: int(h.Count()), PerSecond: float64(h.Count()) / elapsed.Seconds(),
			P50: ms(h.At(0.50)), P95: ms(h.At(0.95)), P99: ms(h.At(0.99)), Longest: ms(h.Max()),
		})
	}
	return r
}
