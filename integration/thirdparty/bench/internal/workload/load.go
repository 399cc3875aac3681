// Package workload is the work of every system, with one source file for each kind.
package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/internal/histogram"
)

// A Load makes workers take and release locks for some time.
type Load struct {
	Keys     Keys          `json:"keys"`
	Workers  int           `json:"workers"`
	Duration time.Duration `json:"duration_ns"`

	// Waits measures from the request to the grant instead of the whole cycle.
	Waits bool `json:"waits"`
	// Work holds one lock in ten for a millisecond.
	Work bool `json:"work"`
}

// A Sample is the result of one system under a Load.
type Sample struct {
	OpsPerSecond float64              `json:"ops_per_s"`
	Latencies    *histogram.Histogram `json:"latencies"`
}

// grace is how long a cycle may continue after the end of the load. Longer waits are canceled,
// and count with the time that they had lasted.
const grace = 2 * time.Second

// Run runs the load. The error is the first of a worker, or exclusion.ErrTwoHolders. The
// contexts that the workers pass on can be canceled.
func (l Load) Run(ctx context.Context, client system.Client, table *exclusion.Table) (Sample, error) {
	if runner, ok := client.(system.Runner); ok {
		ops, latencies, err := runner.Run(ctx, l.Workers, l.Keys == Hot, l.Duration)
		return Sample{ops, latencies}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]*worker, l.Workers)
	for i := range workers {
		workers[i] = newWorker(l, i, client, table, cancel)
	}
	tail := time.AfterFunc(l.Duration+grace, func() { cancel(errOver) })
	defer tail.Stop()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
	s := Sample{Latencies: new(histogram.Histogram)}
	for _, w := range workers {
		s.OpsPerSecond += w.ops / l.Duration.Seconds()
		s.Latencies.Merge(&w.latencies)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errOver) {
		return s, cause // the first error, which canceled the other workers
	}
	return s, nil
}

// errOver ends the load when its time is over.
var errOver = errors.New("the load is over")
