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
	if !program.IsTerminal(os.Stderr) || app.Quiet() {
		return func() {}
	}
	began := time.Now()
	return background.Run(context.Background(), func(ctx context.Context) {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				_, _ = io.WriteString(os.Stderr, "\r\x1b[K")
				return
			case <-tick.C:
				elapsed := time.Since(began)
				leases, violations, c := run.Progress()
				_, _ = fmt.Fprintf(os.Stderr, "\r\x1b[K%v of %v: %d leases (%.0f/s), %d expired, %d errors, %d violations",
					elapsed.Truncate(time.Second), d, leases, float64(leases)/elapsed.Seconds(), c.Expired, c.Busy+c.Failed, violations)
			}
		}
	})
}

func printReport(app *program.App, d load.Report) error {
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
