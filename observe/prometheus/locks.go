package prometheus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/namespace"
)

// noNamespace is the label of keys without a namespace; no namespace has this name.
const noNamespace = "(none)"

// A locks counts events of Lockers.
type locks struct {
	requests, handOvers, losses *prometheus.CounterVec
	waits, holds                *prometheus.HistogramVec
	collectors

	spaces  sync.Map // name of a namespace → *space
	waiting sync.Map // WaitData.Request → *wait
	lockers lockers
}

// A space holds the resolved series of a namespace, so that the hot path only counts.
type space struct {
	name        string
	results     map[result]prometheus.Counter
	handOvers   prometheus.Counter
	losses      map[string]prometheus.Counter
	wait, holds prometheus.Observer
}

// A wait is a waiting request.
type wait struct {
	in    *space
	since time.Time
}

func newLocks() *locks {
	l := &locks{
		requests:  counters("pglatch_lock_acquisitions_total", "Requests for a lock, by how they ended.", "namespace", "result"),
		handOvers: counters("pglatch_lock_handovers_total", "Locks that were granted inside the process, without a round trip.", "namespace"),
		losses:    counters("pglatch_lock_losses_total", "Locks that ended before their release, by the reason.", "namespace", "reason"),
		waits: histograms("pglatch_lock_wait_seconds", "Time from a request for a lock to its end, successful or not. Tries are not counted, because they do not wait.",
			[]float64{.0001, .0005, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 300}, "namespace"),
		holds: histograms("pglatch_lock_hold_seconds", "Time from the grant of a lock to its release or loss.",
			[]float64{.0001, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}, "namespace"),
	}
	l.collectors = collectors{l.requests, l.handOvers, l.losses, l.waits, l.holds}
	l.lockers.open = make(map[*advisory.Locker]struct{})
	return l
}

func (l *locks) describe(to chan<- *prometheus.Desc) {
	l.collectors.describe(to)
	for _, n := range l.numbers() {
		to <- n.desc
	}
}

func (l *locks) collect(to chan<- prometheus.Metric) {
	l.collectors.collect(to)
	l.collectWaits(to)
	l.collectLockers(to)
}

// Tracer returns the Tracer for an advisory.Config, for any number of Lockers; their metrics are
// summed. To combine it with another Tracer, use advisory.MultiTracer.
func (m *Metrics) Tracer() advisory.Tracer {
	l := m.locks
	return advisory.Tracer{Open: l.opened, Acquire: l.acquire, Wait: l.wait, Release: l.release, Loss: l.loss}
}

// of returns the series of a key's namespace. All of them start at 0: Prometheus sees no increase
// on a series that did not exist.
func (l *locks) of(key namespace.Key) *space {
	name := key.Namespace().Name()
	if name == "" {
		name = noNamespace
	}
	if s, ok := l.spaces.Load(name); ok {
		return s.(*space)
	}
	s := &space{
		name: name, handOvers: l.handOvers.WithLabelValues(name), wait: l.waits.WithLabelValues(name), holds: l.holds.WithLabelValues(name),
		results: make(map[result]prometheus.Counter), losses: make(map[string]prometheus.Counter),
	}
	for _, r := range results {
		s.results[r] = l.requests.WithLabelValues(name, string(r))
	}
	for _, r := range lossreason.All() {
		s.losses[r] = l.losses.WithLabelValues(name, r)
	}
	known, _ := l.spaces.LoadOrStore(name, s)
	return known.(*space)
}

func (l *locks) wait(_ context.Context, d advisory.WaitData) {
	l.waiting.LoadOrStore(d.Request, &wait{l.of(d.Key), time.Now()}) // AcquireAll waits for each key
}

func (l *locks) acquire(_ context.Context, d advisory.AcquireData) {
	l.waiting.Delete(d.Request)
	s := l.of(d.Key)
	s.results[resultOf(d.Err)].Inc()
	if !d.Try {
		s.wait.Observe(d.Waited.Seconds())
	}
	if d.HandOver {
		s.handOvers.Inc()
	}
}

func (l *locks) release(_ context.Context, d advisory.ReleaseData) {
	if !errors.Is(d.Err, advisory.ErrLost) { // a lost lock's end is counted already
		l.of(d.Key).holds.Observe(d.Held.Seconds())
	}
}

func (l *locks) loss(_ context.Context, d advisory.LossData) {
	s := l.of(d.Key)
	s.losses[d.Reason].Inc()
	s.holds.Observe(d.Held.Seconds())
}
