package leaseserver

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
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
	opRenewAll // many renewals
	ops
)

var opNames = [ops]string{"acquire", "renew", "release", "get", "list", "sweep", "hand_over", "renew_all"}

// A metrics holds series that are looked up in advance: the hot path only counts.
type metrics struct {
	results [opRelease + 1]results
	forced  results // forced releases
	op      [ops]opMetrics
	held    prometheus.Gauge
	expired prometheus.Counter
	slots   prometheus.Counter // granted slots of locks
	whole   prometheus.Counter // granted whole locks
	up      prometheus.Gauge

	active, forwards       prometheus.Gauge
	forwarded, unforwarded prometheus.Counter
}

// results count outcomes by their reason: success, another holder, a refused claim, a client that
// hung up, or the store.
type results struct{ success, held, refused, gone, busy, unavailable prometheus.Counter }

type opMetrics struct {
	ms, seconds prometheus.Observer
	busy        prometheus.Counter
	failed      prometheus.Counter
}

func newMetrics(registry *prometheus.Registry, waiters func() float64) (*metrics, error) {
	m := &metrics{
		held:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "locks_held", Help: "Leases that have not expired, at the last sweep."}),
		up:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "lock_store_up", Help: "1 if the store carried out or refused its last operation, 0 if it could not."}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{Name: "lock_expired_total", Help: "Leases that expired without a release."}),
	}
	m.active = prometheus.NewGauge(prometheus.GaugeOpts{Name: "lock_server_active", Help: "1 if this server is the active one of several on its store."})
	m.forwards = prometheus.NewGauge(prometheus.GaugeOpts{Name: "lock_server_forwards", Help: "1 if this server forwards requests to the active one, 0 if it answers by itself."})
	m.up.Set(1)
	ms := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lock_op_latency_ms", Help: "Time of an operation of the store, in milliseconds.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000},
	}, []string{"op"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "lock_op_duration_seconds", Help: "Time of an operation of the store, in seconds.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"op"})
	busy := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_db_busy_total", Help: "Operations that failed because the store was too busy."}, []string{"op"})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lock_store_failures_total", Help: "Operations that the store neither carried out nor refused: it was silent, away, full, not ready, or reported an error. Those that failed because it was too busy are not counted.",
	}, []string{"op"})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lock_waiters", Help: "Requests that wait for a lock."}, waiters)
	forced := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_force_release_total", Help: "Requests of admins to end other holders' leases."}, []string{"result"})
	m.forced = newResults(forced)
	shares := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_shares_granted_total", Help: "Slots of locks, and whole locks beside them, that were granted; lock_acquire_total counts them too."}, []string{"mode"})
	m.slots, m.whole = shares.WithLabelValues(wire.ModeShared), shares.WithLabelValues(wire.ModeExclusive)
	forwards := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_forwarded_total", Help: "Requests that this server forwarded to the active one, by whether the active one answered."}, []string{"result"})
	m.forwarded, m.unforwarded = forwards.WithLabelValues("answered"), forwards.WithLabelValues("failed")
	all := []prometheus.Collector{m.active, m.forwards, forwards, shares, forced, m.held, m.expired, m.up, ms, seconds, busy, failed, waiting}
	for o, name := range opNames {
		m.op[o] = opMetrics{ms.WithLabelValues(name), seconds.WithLabelValues(name), busy.WithLabelValues(name), failed.WithLabelValues(name)}
		if o > int(opRelease) {
			continue
		}
		total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lock_" + name + "_total", Help: "Requests to " + name + "."}, []string{"result"})
		m.results[o] = newResults(total)
		all = append(all, total)
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func newResults(total *prometheus.CounterVec) results {
	return results{
		total.WithLabelValues("success"), total.WithLabelValues("held"), total.WithLabelValues("refused"),
		total.WithLabelValues("gone"), total.WithLabelValues("busy"), total.WithLabelValues("unavailable"),
	}
}

// observe counts one operation of the store.
func (m *metrics) observe(o op, start time.Time, err error) {
	took := time.Since(start).Seconds()
	m.op[o].ms.Observe(took * 1000)
	m.op[o].seconds.Observe(took)
	up := 1.0
	switch {
	case isAnswer(err):
	case errors.Is(err, lease.ErrBusy):
		m.op[o].busy.Inc()
		up = 0
	default:
		m.op[o].failed.Inc()
		up = 0
	}
	m.up.Set(up)
}

// request counts the outcome of one request.
func (m *metrics) request(o op, err error) { m.results[o].count(err) }

func (r *results) count(err error) {
	switch {
	case err == nil:
		r.success.Inc()
	case errors.Is(err, errMoved): // another server counts it
	case errors.Is(err, lease.ErrBusy):
		r.busy.Inc()
	case errors.Is(err, lease.ErrHeld):
		r.held.Inc()
	case isAnswer(err):
		r.refused.Inc()
	case errors.Is(err, context.Canceled):
		r.gone.Inc()
	default:
		r.unavailable.Inc()
	}
}

// isAnswer reports whether a store that works can return err.
func isAnswer(err error) bool {
	return err == nil || lease.IsOver(err) || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrInvalid)
}
