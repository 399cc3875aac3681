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

// workers is how many clients there are at once.
const workers = 80

// A cycler acquires a lock, calls held, and releases it. Each worker has its own.
type cycler func(ctx context.Context, lock string, held func()) error

// A contender is a system that is measured.
type contender struct {
	name     string
	cycles   []cycler
	requests func() float64 // to acquire, that its server has answered; nil = not counted
}

// A spell is what one system did in a time.
type spell struct {
	perSecond float64
	p50, p99  float64 // milliseconds of a cycle
	cpu       float64 // microseconds of this process, for each cycle
	requests  float64 // to acquire, for each grant
}

// measure lets the workers of one system cycle for a time. hot: all on one lock,
// which is checked to exclude; else each on its own.
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

// BenchmarkLease measures cycles of acquire and release by 80 clients in the process
// of their server: pglatch's on SQLite and on PostgreSQL, and etcd's lock, all of
// which sync to the disk before they acknowledge. The systems take turns of two
// seconds. Ratios are of cycles per second, the median over all turns.
func BenchmarkLease(b *testing.B) {
	contenders := []contender{newEtcd(b, workers, startEtcd(b)), newSQLite(b), newPostgres(b)}
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			takeTurns(b, contenders, load.hot)
		})
	}
}

// takeTurns measures each of some systems in turn, and compares them.
func takeTurns(b *testing.B, contenders []contender, hot bool) {
	b.Helper()
	spells := make([][]spell, len(contenders))
	for _, c := range contenders {
		measure(b, c, hot, turn/4) // connections, caches
	}
	for b.Loop() {
		for i, c := range contenders {
			spells[i] = append(spells[i], measure(b, c, hot, turn))
		}
	}
	compare(b, contenders, spells)
}

// loads are which locks the workers of a benchmark want.
var loads = []struct {
	name string
	hot  bool
}{{"uncontended", false}, {"hot", true}}

const turn = 2 * time.Second

// compare reports the medians, and how those of pglatch stand to etcd's, which is
// the first.
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
