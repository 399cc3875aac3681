package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	lockmetrics "github.com/pglatch/pglatch/observe/prometheus"
)

// The examples print what /metrics would show of one metric.
func show(registry *prometheus.Registry, name string) {
	all, err := metricsText(registry, name)
	if err != nil {
		log.Fatal(err)
	}
	for _, sample := range all {
		fmt.Println(name + sample)
	}
}

func ExampleMetrics_Tracer() {
	registry := prometheus.NewRegistry() // a program has its own, or prometheus.DefaultRegisterer
	metrics := lockmetrics.New()
	registry.MustRegister(metrics)

	// A program calls advisory.Open; this server is in memory.
	locker, err := advisorytest.NewServer().Open(advisory.Config{Tracer: metrics.Tracer()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	_ = locker.Do(context.Background(), orders.ID(42), func(context.Context) error {
		show(registry, "pglatch_locks_held")
		return nil
	})
	show(registry, "pglatch_lock_acquisitions_total")
	// Output:
	// pglatch_locks_held{namespace="order"} 1
	// pglatch_lock_acquisitions_total{namespace="order",result="success"} 1
}

func ExampleMetrics_Watch() {
	registry := prometheus.NewRegistry()
	metrics := lockmetrics.New()
	registry.MustRegister(metrics)

	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	defer metrics.Watch(elector)()
	_ = elector.Run(context.Background(), func(context.Context) error {
		show(registry, "leader_election_master_status")
		return nil
	})
	// Output:
	// leader_election_master_status{database="",name="scheduler"} 1
}

func ExampleMetrics_Store() {
	registry := prometheus.NewRegistry()
	metrics := lockmetrics.New()
	registry.MustRegister(metrics)

	store := metrics.Store(leasetest.NewStore()) // a program's is of lease/postgres, or a lock server's client
	_, err := store.Acquire(context.Background(), lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
	fmt.Println(err)
	show(registry, "pglatch_lease_requests_total")
	// Output:
	// <nil>
	// pglatch_lease_requests_total{op="acquire",result="success"} 1
}
