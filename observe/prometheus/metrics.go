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

// A part is some of the metrics.
type part interface {
	describe(to chan<- *prometheus.Desc)
	collect(to chan<- prometheus.Metric)
}

// parts is a Collector of several parts.
type parts []part

// Describe implements prometheus.Collector.
func (all parts) Describe(to chan<- *prometheus.Desc) {
	for _, p := range all {
		p.describe(to)
	}
}

// Collect implements prometheus.Collector.
func (all parts) Collect(to chan<- prometheus.Metric) {
	for _, p := range all {
		p.collect(to)
	}
}

// Elections returns a Collector of the metrics of elections alone, which have a label database of their own.
func (m *Metrics) Elections() prometheus.Collector { return parts{m.elections} }

// ExceptElections returns a Collector of all other metrics. A program that uses several databases has Metrics for each,
// and registers these with a label database:
//
//	labels := prometheus.Labels{"database": "db-1:5432/shop"} // as elections of that database have it
//	prometheus.WrapRegistererWith(labels, registry).MustRegister(shop.ExceptElections())
func (m *Metrics) ExceptElections() prometheus.Collector {
	return parts{m.locks, m.leases, m.spread, m.mail}
}

// Describe sends what Collect can send.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.Elections().Describe(to)
	m.ExceptElections().Describe(to)
}

// Collect sends the current values of all metrics. It does no I/O, but walks through the held locks.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.Elections().Collect(to)
	m.ExceptElections().Collect(to)
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
