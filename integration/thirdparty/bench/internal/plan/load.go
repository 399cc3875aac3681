package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/worker"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
	"github.com/pglatch/pglatch/internal/histogram"
)

// A team is the set of one system's processes in a cell.
type team struct {
	system    system.System
	beside    int // locks that it holds during the load
	processes []*worker.Process
	rounds    [][]workload.Sample // of each process
	cost      worker.Cost
	notRun    string
	err       error
}

// warmUp is the longest time that a system works before the measurement, to open connections
// and fill caches.
const warmUp = 250 * time.Millisecond

// measure runs all systems in turn, round by round.
func (p *Plan) measure(ctx context.Context, c cell) (report.Rows, error) {
	var teams []*team
	defer func() {
		for _, t := range teams {
			t.close()
		}
	}()
	besides := c.beside
	if besides == nil {
		besides = []int{0}
	}
	for _, s := range p.Systems {
		for _, n := range besides {
			t := &team{system: s, beside: n, notRun: p.noLoad(s, c)}
			teams = append(teams, t)
			if t.notRun == "" {
				t.start(ctx, p, c)
			}
		}
	}
	for round := range p.Rounds {
		for _, t := range turns(teams, round) {
			if t.fit() {
				t.run(c.load)
			}
		}
	}
	var rows report.Rows
	for _, t := range teams {
		t.finish()
		if errors.Is(t.err, exclusion.ErrTwoHolders) || ctx.Err() != nil {
			return nil, fmt.Errorf("%s, %s, %d workers: %w", t.system.Name, c.workload, c.workers(), errors.Join(t.err, context.Cause(ctx)))
		}
		rows = append(rows, t.row(c))
	}
	return rows, nil
}

// noLoad returns the reason why a system takes no part in a cell, or "".
func (p *Plan) noLoad(s system.System, c cell) string {
	switch {
	case p.missing(s) != "":
		return p.missing(s)
	case s.LoadOnly && c.workload != report.Random && c.workload != report.Hot:
		return "it has no such load"
	case c.beside == nil:
		return ""
	}
	for _, n := range c.beside {
		if reason := p.noStock(s, n); n > 0 && reason != "" {
			return reason
		}
	}
	return ""
}

// fit reports whether the team can continue.
func (t *team) fit() bool { return t.notRun == "" && t.err == nil }

func (t *team) start(ctx context.Context, p *Plan, c cell) {
	for i := range c.processes {
		env := p.env(t.system, i)
		env.Workers, env.Sentinel = c.load.Workers, t.system.Ours
		if t.beside > 0 {
			env.Locks = t.beside + 2*c.load.Workers // including the sentinel
		}
		process, err := worker.Start(ctx, worker.Open{System: t.system.Name, Env: env, Table: p.Table})
		if err != nil {
			t.err = err
			return
		}
		t.processes = append(t.processes, process)
		if t.beside > 0 {
			if _, t.err = process.Hold(t.beside, stockBound); t.err != nil {
				return
			}
		}
	}
	if t.system.LoadOnly {
		return
	}
	warm := c.load
	warm.Duration = min(c.load.Duration, warmUp)
	t.run(warm)
	t.rounds = nil
}

// run runs the load in all processes at the same time.
func (t *team) run(l workload.Load) {
	samples := make([]workload.Sample, len(t.processes))
	errs := make([]error, len(t.processes))
	var all sync.WaitGroup
	for i, process := range t.processes {
		all.Go(func() { samples[i], errs[i] = process.Run(l) })
	}
	all.Wait()
	t.rounds, t.err = append(t.rounds, samples), errors.Join(errs...)
}

// finish collects the cost, and checks that the guards were on.
func (t *team) finish() {
	if !t.fit() {
		return
	}
	for _, process := range t.processes {
		cost, err := process.Finish()
		t.err = errors.Join(t.err, err)
		t.cost.Connections += cost.Connections
		t.cost.RSSBytes += cost.RSSBytes
		t.cost.ServerBytes += cost.ServerBytes
	}
}

func (t *team) close() {
	for _, process := range t.processes {
		_ = process.Close() // all results are already here
	}
}

func (t *team) row(c cell) report.Row {
	r := report.Row{Workload: c.workload, System: t.system.Name, Workers: c.workers(), Locks: t.beside, NotRun: t.notRun}
	if t.err != nil {
		r.NotRun, r.Failed = t.err.Error(), true
	}
	if r.NotRun != "" {
		return r
	}
	shares := make([]float64, c.processes)
	var p50, p99, p999 []float64
	for _, samples := range t.rounds {
		var sum float64
		latencies := new(histogram.Histogram)
		for i, s := range samples {
			sum += s.OpsPerSecond
			shares[i] += s.OpsPerSecond
			latencies.Merge(s.Latencies)
		}
		r.Rounds = append(r.Rounds, sum)
		p50, p99, p999 = append(p50, micros(latencies.At(0.5))), append(p99, micros(latencies.At(0.99))), append(p999, micros(latencies.At(0.999)))
		r.MaxUS = max(r.MaxUS, micros(latencies.Max()))
	}
	r.OpsPerS, r.P50US, r.P99US, r.P999US = gauge.Median(r.Rounds), gauge.Median(p50), gauge.Median(p99), gauge.Median(p999)
	r.RoundsP99 = p99
	r.Connections, r.RSSBytes, r.ServerBytes = t.cost.Connections, t.cost.RSSBytes, t.cost.ServerBytes
	if total := sum(shares); c.processes > 1 && total > 0 {
		for i := range shares {
			shares[i] /= total
		}
		r.Shares = slices.Clone(shares)
	}
	return r
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
