package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/leader/shards"
)

// Metrics collects the metrics of any number of Lockers, elections, mailboxes and nodes that own shards, in one process. It is a
// Collector, for the program to register once. It is safe for concurrent use.
type Metrics struct {
	locks     *locks
	elections *elections
	leases    *leases
	spread    *spread
	mail      *mail
}

// New returns empty Metrics. To feed them, see Tracer, Watch, WatchShards, Turns, WatchMailbox, Store and Client.
func New() *Metrics {
	return &Metrics{locks: newLocks(), elections: newElections(), leases: newLeases(), mail: newMail(), spread: &spread{ended: map[string]shards.Stats{}}}
}

var _ prometheus.Collector = (*Metrics)(nil)

// Describe sends what Collect can send.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.locks.describe(to)
	m.elections.describe(to)
	m.leases.describe(to)
	m.spread.describe(to)
	m.mail.describe(to)
}

// Collect sends the current values of all metrics. It does no I/O, but walks through the held locks.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.locks.collect(to)
	m.elections.collect(to)
	m.leases.collect(to)
	m.spread.collect(to)
	m.mail.collect(to)
}

// A collectors is several collectors of client_golang.
type collectors []prometheus.Collector

func (all collectors) describe(to chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(to)
	}
}

func (all collectors) collect(to chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(to)
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// A number is a metric whose value is computed when it is collected.
type number struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) number {
	return number{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func total(name, help string) number {
	return number{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue}
}

func (n number) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(n.desc, n.kind, value, labels...)
}
