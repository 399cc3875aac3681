package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/worker"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
)

// The time limit for taking many locks, and how often this is measured.
const (
	stockBound  = time.Minute
	stockRounds = 3
	largeStock  = 100_000 // from this number on, measured only once
)

// stock makes each system take and hold n locks, each time in a new process.
func (p *Plan) stock(ctx context.Context, n int) (report.Rows, error) {
	rounds := min(p.Rounds, stockRounds)
	if n >= largeStock {
		rounds = 1
	}
	rows := make(report.Rows, len(p.Systems))
	for i, s := range p.Systems {
		rows[i] = report.Row{Workload: report.Hold, System: s.Name, Workers: workload.Takers, Locks: n, NotRun: p.noStock(s, n)}
	}
	taken, released := make([][]float64, len(p.Systems)), make([][]float64, len(p.Systems))
	for range rounds {
		for i, s := range p.Systems {
			r := &rows[i]
			if r.NotRun != "" {
				continue
			}
			got, cost, err := p.hold(ctx, s, n)
			if err != nil {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				r.NotRun, r.Failed = err.Error(), true
				continue
			}
			taken[i] = append(taken[i], got.Seconds)
			r.TakenSeconds = gauge.Median(taken[i])
			r.Rounds = append(r.Rounds, float64(n)/got.Seconds)
			r.OpsPerS = gauge.Median(r.Rounds)
			released[i] = append(released[i], got.Released)
			r.ReleasedSeconds = gauge.Median(released[i])
			r.HeapPerLock = got.HeapBytes / int64(n)
			r.Connections, r.RSSBytes, r.ServerBytes = cost.Connections, cost.RSSBytes, cost.ServerBytes
		}
	}
	return rows, nil
}

// noStock returns the reason why a system cannot hold n locks, or "".
func (p *Plan) noStock(s system.System, n int) string {
	switch {
	case p.missing(s) != "":
		return p.missing(s)
	case s.Stock != "":
		return s.Stock
	case s.PerLock && n > p.Servers.Limits.Connections:
		return fmt.Sprintf("it needs %d connections", n)
	case n > cmp.Or(s.MaxStock, largeStock):
		return fmt.Sprintf("not asked for more than %d locks", cmp.Or(s.MaxStock, largeStock))
	case s.Ours && n > p.Servers.Limits.Locks:
		return fmt.Sprintf("the server has room for %d locks: raise max_locks_per_transaction", p.Servers.Limits.Locks)
	}
	return ""
}

func (p *Plan) hold(ctx context.Context, s system.System, n int) (got workload.Stock, cost worker.Cost, err error) {
	env := p.env(s, 0)
	env.Locks = n
	process, err := worker.Start(ctx, worker.Open{System: s.Name, Env: env, Table: p.Table})
	if err != nil {
		return got, cost, err
	}
	got, err = process.Hold(n, stockBound)
	if err == nil {
		cost, err = process.Finish()
	}
	if err == nil && s.Ours {
		got.Released, err = process.Drop()
	}
	process.Kill() // the release by the other systems is not measured
	return got, cost, errors.Join(err, p.gone(ctx, env.Tag))
}

// gone waits until PostgreSQL has noticed that a client is gone.
func (p *Plan) gone(ctx context.Context, tag string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stockBound, errors.New("the sessions of the last client do not end"))
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		left, err := system.Sessions(ctx, p.Servers.Addresses[system.Postgres], tag)
		if err == nil && left.Connections == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-poll.C:
		}
	}
}
