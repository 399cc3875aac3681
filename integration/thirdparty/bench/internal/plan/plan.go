// Package plan runs the same work on every system, in turns.
package plan

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/servers"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
)

// A Plan specifies the measurements.
type Plan struct {
	Systems   []system.System
	Workloads []string // names of package report
	Rounds    int
	Duration  time.Duration // of a system's turn
	Stocks    []int         // numbers of locks to hold

	Servers *servers.Set
	Table   string    // file of the exclusion table
	Log     io.Writer // for progress
}

// poolSize is the size of every system's connection pool, in each process.
const poolSize = 64

// besideLocks are held beside a load.
const besideLocks = 10_000

// A cell is a load with a number of workers.
type cell struct {
	workload  string
	load      workload.Load // of each process
	processes int
	beside    []int // locks held meanwhile, a team for each number; none = 0
}

func (c cell) workers() int { return c.load.Workers * c.processes }

// cells returns the loads of a workload, each for one turn.
func (p *Plan) cells(name string) []cell {
	load := func(keys workload.Keys, workers int) cell {
		return cell{name, workload.Load{Keys: keys, Workers: workers, Duration: p.Duration}, 1, nil}
	}
	switch name {
	case report.Random:
		return []cell{load(workload.Random, 1), load(workload.Random, 8), load(workload.Random, 64), load(workload.Random, 512)}
	case report.Hot:
		return []cell{load(workload.Hot, 8), load(workload.Hot, 64), load(workload.Hot, 512)}
	case report.TwoProcesses: // longer, because fairness alternates between spells of many milliseconds: 10 s in all rounds
		return []cell{{name, workload.Load{Keys: workload.Hot, Workers: 32, Duration: p.Duration * 5 / 2, Waits: true}, 2, nil}}
	case report.Zipf:
		return []cell{{name, workload.Load{Keys: workload.Zipf, Workers: 64, Duration: p.Duration, Waits: true, Work: true}, 1, nil}}
	case report.Beside:
		c := load(workload.Random, 64)
		c.beside = []int{0, besideLocks}
		return []cell{c}
	}
	return nil
}

// Run measures everything. It returns only ErrTwoHolders or the end of ctx as an error: the
// failure of a single system is in its rows.
func (p *Plan) Run(ctx context.Context) (report.Rows, error) {
	var rows report.Rows
	for _, name := range p.Workloads {
		for _, c := range p.cells(name) {
			p.logf("%s, %d workers", name, c.workers())
			more, err := p.measure(ctx, c)
			if err != nil {
				return rows, err
			}
			rows = append(rows, more...)
		}
		more, err := p.special(ctx, name)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	rows.Compare(system.HandWritten)
	return rows, nil
}

// special runs the workloads that are not loads.
func (p *Plan) special(ctx context.Context, name string) (rows report.Rows, err error) {
	switch name {
	case report.Hold:
		for _, n := range p.Stocks {
			p.logf("%s, %d locks", name, n)
			more, err := p.stock(ctx, n)
			if err != nil {
				return rows, err
			}
			rows = append(rows, more...)
		}
	case report.Loss:
		p.logf("%s", name)
		return p.losses(ctx)
	}
	return rows, nil
}

// env returns the Env of a client.
func (p *Plan) env(s system.System, number int) system.Env {
	return system.Env{
		Addresses: p.Servers.Addresses, PIDs: p.Servers.PIDs, Conns: poolSize, Idle: time.Duration(len(p.Systems)) * p.Duration,
		Tag: fmt.Sprintf("bench-%s-%d", s.Name, number),
	}
}

// missing returns the reason why a system cannot run at all, or "".
func (p *Plan) missing(s system.System) string { return p.Servers.Missing[s.Needs] }

func (p *Plan) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Log, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...) // progress only
}

// turns returns the order of the systems in a round: each system begins once.
func turns[T any](all []T, round int) []T {
	if len(all) == 0 {
		return nil
	}
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}
