package workload

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/internal/histogram"
)

// A worker makes one cycle after the other.
type worker struct {
	load   Load
	number int
	client system.Client
	table  *exclusion.Table
	cancel context.CancelCauseFunc // ends the whole load
	pick   func() uint32

	began     time.Time     // of its work; other times count from then, which halves the cost of reading the clock
	key       uint32        // of the cycle
	granted   time.Duration // of the cycle, if waits are measured; 0 = not yet
	cycles    int
	ops       float64 // within the load's time; a cycle across its end counts in part
	latencies histogram.Histogram
	err       error
}

func newWorker(l Load, number int, client system.Client, table *exclusion.Table, cancel context.CancelCauseFunc) *worker {
	return &worker{load: l, number: number, client: client, table: table, cancel: cancel, pick: l.Keys.picker(number)}
}

// run works for the load's duration from now on: on a busy machine it may begin after the others.
func (w *worker) run(ctx context.Context) {
	w.began = time.Now()
	end := w.load.Duration
	held := w.held // one closure for all cycles
	for start := time.Since(w.began); start < end && w.err == nil && ctx.Err() == nil; {
		w.key, w.granted = w.pick(), 0
		err := w.client.Cycle(ctx, w.number, w.key, held)
		now := time.Since(w.began)
		if err != nil {
			w.fail(ctx, err)
		}
		switch {
		case err != nil:
		case now < end:
			w.ops++
		default:
			w.ops += float64(end-start) / float64(now-start)
		}
		measured := now
		if w.load.Waits && w.granted != 0 {
			measured = w.granted
		}
		w.latencies.Add(measured - start)
		start = now
	}
}

// fail records an error, except the end of the load.
func (w *worker) fail(ctx context.Context, err error) {
	if errors.Is(context.Cause(ctx), errOver) {
		return
	}
	w.err = errors.Join(w.err, err)
	w.cancel(w.err) // no effect if another worker failed before
}

// held runs under the lock: it checks the exclusion, and works.
func (w *worker) held() {
	if w.load.Waits {
		w.granted = time.Since(w.began)
	}
	noted, err := w.table.Enter(w.key)
	w.cycles++
	if w.load.Work && w.cycles%10 == w.number%10 {
		<-time.After(time.Millisecond)
	}
	if noted {
		err = errors.Join(err, w.table.Leave(w.key))
	}
	if err != nil {
		w.err = err
		w.cancel(err)
	}
}
