package plan

import (
	"context"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/worker"
	"github.com/pglatch/pglatch/internal/histogram"
)

// The locks that are lost in a round: one per connection, or all on a few.
var (
	lossesPerLock = []int{64}
	lossesShared  = []int{1000, 10_000}
)

// losses measures pglatch alone. The other systems notice a loss at their next statement, or
// have no session to lose.
func (p *Plan) losses(ctx context.Context) (report.Rows, error) {
	var rows report.Rows
	for _, s := range p.Systems {
		numbers := lossesShared
		switch {
		case !s.Ours:
			continue
		case s.PerLock:
			numbers = lossesPerLock
		}
		for _, n := range numbers {
			r, err := p.loss(ctx, s, n)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// loss makes a system lose n locks in each round. It returns an error only when ctx ends.
func (p *Plan) loss(ctx context.Context, s system.System, n int) (report.Row, error) {
	r := report.Row{Workload: report.Loss, System: s.Name, Workers: 1, Locks: n}
	all := new(histogram.Histogram)
	for range p.Rounds {
		times, err := p.lose(ctx, s, n)
		if err != nil {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			r.NotRun, r.Failed = err.Error(), true
			break
		}
		all.Merge(times)
	}
	r.P50US, r.P99US, r.P999US, r.MaxUS = micros(all.At(0.5)), micros(all.At(0.99)), micros(all.At(0.999)), micros(all.Max())
	return r, nil
}

func (p *Plan) lose(ctx context.Context, s system.System, n int) (*histogram.Histogram, error) {
	env := p.env(s, 0)
	env.Locks = n
	process, err := worker.Start(ctx, worker.Open{System: s.Name, Env: env, Table: p.Table})
	if err != nil {
		return nil, err
	}
	defer process.Close() //nolint:errcheck // all results are already here
	return process.Lose(n)
}
