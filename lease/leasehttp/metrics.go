package leasehttp

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/lease"
)

// An op is an operation of the store.
type op int

const (
	opAcquire op = iota
	opRenew
	opRelease
	opGet
	opList
	opSweep
	opHandOver // a release and an acquire
	ops
)

var opNames = [ops]string{"acquire", "renew", "release", "get", "list", "sweep", "hand_over"}

// A metrics has its series looked up before: the hot path only counts.
type metrics struct {
	results [opRelease + 1]results
	op      [ops]opMetrics
	held    prometheus.Gauge
	expired prometheus.Counter
}

type results struct{ success, fail, busy prometheus.Counter }

type opMetrics struct {
	ms, seconds prometheus.Observer
	busy        prometheus.Counter
}

func newMetrics(registry *prometheus.Registry, waiters func() float64) (*metrics, error) {
	m := &metrics{
		held:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "locks_held", Help: "Leases that have not expired, at the last sweep."}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_expired_total", Help: "Leases that expired without a release."}),
	}
	ms := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lock_op_latency_ms", Help: "Time of an operation of the store, in milliseconds.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000},
	}, []string{"op"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lock_op_duration_seconds", Help: "Time of an operation of the store, in seconds.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"op"})
	busy := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_db_busy_total", Help: "Operations that the store was too busy for."}, []string{"op"})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lock_waiters", Help: "Requests that wait for a lock."}, waiters)
	collectors := []prometheus.Collector{m.held, m.expired, ms, seconds, busy, waiting}
	for o, name := range opNames {
		m.op[o] = opMetrics{ms.WithLabelValues(name), seconds.WithLabelValues(name), busy.WithLabelValues(name)}
		if o > int(opRelease) {
			continue
		}
		total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_" + name + "_total", Help: "Requests to " + name + "."}, []string{"result"})
		m.results[o] = results{total.WithLabelValues("success"), total.WithLabelValues("fail"), total.WithLabelValues("busy")}
		collectors = append(collectors, total)
	}
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// observe counts one operation of the store.
func (m *metrics) observe(o op, start time.Time, err error) {
	took := time.Since(start).Seconds()
	m.op[o].ms.Observe(took * 1000)
	m.op[o].seconds.Observe(took)
	if err != nil && errors.Is(err, lease.ErrBusy) {
		m.op[o].busy.Inc()
	}
}

// request counts the outcome of one request.
func (m *metrics) request(o op, err error) {
	switch {
	case err == nil:
		m.results[o].success.Inc()
	case errors.Is(err, lease.ErrBusy):
		m.results[o].busy.Inc()
	default:
		m.results[o].fail.Inc()
	}
}
