package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
)

// A Stock is the result of holding many locks at once.
type Stock struct {
	Locks     int     `json:"locks"`
	Seconds   float64 `json:"seconds"`    // to take them all
	HeapBytes int64   `json:"heap_bytes"` // of these locks, in this process
	Released  float64 `json:"released"`   // seconds to release them all; 0 = not measured
}

// Takers is the number of goroutines that take the locks.
const Takers = 512

// Hold takes n locks and keeps them until the client's Close. keep must stay
// reachable meanwhile.
func Hold(ctx context.Context, holder system.Holder, n int) (s Stock, keep []system.Held, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keep = make([]system.Held, n)
	first := rand.Uint32N(randomKeys) // so that locks left by the previous run cause no waits
	before := heap()
	began := time.Now()
	var next, taken atomic.Int64
	var all sync.WaitGroup
	for range min(Takers, n) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				held, err := holder.Take(ctx, (first+uint32(i))%randomKeys)
				if err != nil {
					cancel(err)
					return
				}
				keep[i] = held
				taken.Add(1)
			}
		})
	}
	all.Wait()
	s = Stock{Locks: n, Seconds: time.Since(began).Seconds(), HeapBytes: heap() - before}
	if ctx.Err() != nil {
		return s, keep, fmt.Errorf("took %d of %d locks: %w", taken.Load(), n, context.Cause(ctx))
	}
	return s, keep, nil
}

// Release releases what Hold took, and returns how many seconds that took.
func Release(keep []system.Held) (seconds float64, err error) {
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, min(Takers, len(keep)))
	for w := range errs {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(keep)) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = keep[i].Release()
			}
		})
	}
	all.Wait()
	return time.Since(began).Seconds(), errors.Join(errs...)
}

// heap returns the size of the live heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees what the first run finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
