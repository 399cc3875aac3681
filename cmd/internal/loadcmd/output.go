package loadcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/load"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
)

// showProgress writes a line with the progress of a run to stderr, if that is a terminal, until
// stop.
func showProgress(app *program.App, run *load.Load, d time.Duration) (stop func()) {
	if file, ok := app.Stderr.(*os.File); !ok || !program.IsTerminal(file) || app.Quiet() {
		return func() {}
	}
	began := time.Now()
	return background.Run(context.Background(), func(ctx context.Context) {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				_, _ = io.WriteString(app.Stderr, "\r\x1b[K")
				return
			case <-tick.C:
				p, elapsed := run.Progress(), time.Since(began)
				_, _ = fmt.Fprintf(app.Stderr, "\r\x1b[K%v of %v: %d leases (%.0f/s), %d expired, %d errors, %d violations",
					elapsed.Truncate(time.Second), d, p.Leases, float64(p.Leases)/elapsed.Seconds(), p.Expired, p.Errors, p.Violations)
			}
		}
	})
}

// A loadDocument is a report.
type loadDocument struct {
	Elapsed    float64          `json:"elapsed_ms"`
	Operations []operation      `json:"operations"`
	Counts     load.Counts      `json:"counts"`
	Violations []load.Violation `json:"violations"`
}

type operation struct {
	Operation string  `json:"operation"`
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
	Longest   float64 `json:"max_ms"`
}

func printReport(app *program.App, r load.Report) error {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	d := loadDocument{Elapsed: ms(r.Elapsed), Counts: r.Counts, Violations: append([]load.Violation{}, r.Violations...)}
	for _, m := range r.Operations {
		d.Operations = append(d.Operations, operation{m.Operation, m.Count, m.PerSecond, ms(m.P50), ms(m.P95), ms(m.P99), ms(m.Longest)})
	}
	return app.Print(program.Output{Document: d, Text: func(w *bytes.Buffer) {
		t := app.NewTable("OPERATION", "COUNT", "PER SECOND", "P50", "P95", "P99", "MAX")
		for _, o := range d.Operations {
			t.Add("", o.Operation, fmt.Sprint(o.Count), fmt.Sprintf("%.0f", o.PerSecond),
				fmt.Sprintf("%.2f ms", o.P50), fmt.Sprintf("%.2f ms", o.P95), fmt.Sprintf("%.2f ms", o.P99), fmt.Sprintf("%.2f ms", o.Longest))
		}
		t.WriteTo(w)
		c := d.Counts
		fmt.Fprintf(w, "\nin %.1f s: %d fenced writes accepted, %d to be tried again, %d busy, %d of unknown outcome\n", d.Elapsed/1000, c.Writes, c.Held, c.Busy, c.Failed)
		fmt.Fprintf(w, "%d leases expired; of their holders %d writes, %d renewals and %d releases were refused\n", c.Expired, c.StaleWrites, c.StaleRenewals, c.StaleReleases)
		color := program.Green
		if len(d.Violations) > 0 {
			color = program.Red
		}
		fmt.Fprintln(w, app.Paint(color, fmt.Sprintf("%d violations", len(d.Violations))))
		for _, v := range d.Violations {
			fmt.Fprintln(w, "  "+program.Printable(v.String()))
		}
	}})
}
