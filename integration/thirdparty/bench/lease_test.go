package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workers is the number of concurrent clients.
const workers = 80

// A cycler acquires a lock, calls held, and releases it. Each worker has its own.
type cycler func(ctx context.Context, lock string, held func()) error

// A contender is a system that is measured.
type contender struct {
	name     string
	cycles   []cycler
	requests func() float64 // acquire requests that its server has answered; nil = not counted
}

// A spell is the result of one system in a turn.
type spell struct {
	perSecond float64
	p50, p99  float64 // milliseconds of a cycle
	cpu       float64 // microseconds of this process, per cycle
	requests  float64 // acquire requests per grant
}

// measure makes the workers of one system cycle for a time. If hot is true, all use one lock,
// whose exclusion is checked. Otherwise each worker uses its own lock.
func measure(b *testing.B, c contender, hot bool, d time.Duration) spell {
	b.Helper()
	var (
		ctx       = b.Context()
		inside    atomic.Int32
		all       sync.WaitGroup
		latencies = make([][]time.Duration, len(c.cycles))
		errs      = make([]error, len(c.cycles))
	)
	held := func() {}
	if hot {
		held = func() {
			if inside.Add(1) != 1 {
				panic(c.name + ": two holders")
			}
			inside.Add(-1)
		}
	}
	requests := 0.0
	if c.requests != nil {
		requests = c.requests()
	}
	began, used := time.Now(), cpu(b)
	for w := range c.cycles {
		lock := "hot"
		if !hot {
			lock = fmt.Sprintf("lock-%d", w)
		}
		all.Go(func() {
			for start := time.Now(); start.Sub(began) < d && errs[w] == nil; start = time.Now() {
				errs[w] = c.cycles[w](ctx, lock, held)
				latencies[w] = append(latencies[w], time.Since(start))
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	require.NoError(b, errors.Join(errs...), c.name)
	grants := slices.Concat(latencies...)
	require.NotEmpty(b, grants, c.name)
	slices.Sort(grants)
	at := func(p float64) float64 {
		return float64(grants[int(p*float64(len(grants)))]) / float64(time.Millisecond)
	}
	s := spell{perSecond: float64(len(grants)) / elapsed.Seconds(), p50: at(0.5), p99: at(0.99)}
	s.cpu = float64((cpu(b) - used).Microseconds()) / float64(len(grants))
	if c.requests != nil {
		s.requests = (c.requests() - requests) / float64(len(grants))
	}
	return s
}

// BenchmarkLease measures acquire and release cycles of 80 clients in the process of their
// server: pglatch's on SQLite and on PostgreSQL, and etcd's lock. All of them sync to disk
// before they acknowledge. The systems take turns of two seconds. Ratios compare cycles per
// second, as the median over all turns.
func BenchmarkLease(b *testing.B) {
	contenders := []contender{newEtcd(b, workers, startEtcd(b)), newSQLite(b), newPostgres(b)}
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			takeTurns(b, contenders, load.hot)
		})
	}
}

// takeTurns measures the systems in turn and compares them.
func takeTurns(b *testing.B, contenders []contender, hot bool) {
	b.Helper()
	spells := make([][]spell, len(contenders))
	for _, c := range contenders {
		measure(b, c, hot, turn/4) // opens connections and fills caches
	}
	for b.Loop() {
		for i, c := range contenders {
			spells[i] = append(spells[i], measure(b, c, hot, turn))
		}
	}
	compare(b, contenders, spells)
}

// loads says which locks the workers of a benchmark use.
var loads = []struct {
	name string
	hot  bool
}{{"uncontended", false}, {"hot", true}}

const turn = 2 * time.Second

// compare reports the medians, and the ratios of pglatch's to etcd's, which is the first.
func compare(b *testing.B, contenders []contender, spells [][]spell) {
	b.Helper()
	median := func(system int, of func(spell) float64) float64 {
		var values []float64
		for _, s := range spells[system] {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	rate := func(s spell) float64 { return s.perSecond }
	for i, c := range contenders {
		b.ReportMetric(median(i, rate), c.name+"-cycles/s")
		b.ReportMetric(median(i, func(s spell) float64 { return s.p50 }), c.name+"-p50-ms")
		b.ReportMetric(median(i, func(s spell) float64 { return s.p99 }), c.name+"-p99-ms")
		b.ReportMetric(median(i, func(s spell) float64 { return s.cpu }), c.name+"-cpu-us/cycle")
		if i > 0 {
			b.ReportMetric(median(i, rate)/median(0, rate), c.name+"/etcd")
			b.ReportMetric(median(i, func(s spell) float64 { return s.requests }), c.name+"-requests/grant")
		}
	}
	b.ReportMetric(0, "ns/op")
}
