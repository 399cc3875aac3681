package leadercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/leader"
)

// serveLeader serves an Elector's state until stop. An empty address serves
// nothing.
func serveLeader(ctx context.Context, app *program.App, address string, elector *leader.Elector) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &program.ExitError{Code: program.ExitFailure, Err: fmt.Errorf("--http: %w", err)}
	}
	mux := http.NewServeMux()
	mux.Handle("/", elector.Handler())
	mux.Handle("GET /metrics", newMetrics(elector))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	app.Logger().Info("serving", slog.String("address", listener.Addr().String()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			app.Logger().Error("serving ended", slog.Any("error", err))
		}
	})
	return func() {
		_ = server.Close()
		serving.Wait()
	}, nil
}

// newMetrics answers with an Elector's metrics, by the names that dashboards for
// client-go know.
func newMetrics(e *leader.Elector) http.Handler {
	name := prometheus.Labels{"name": e.Name()}
	status := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "1 if this node leads.", ConstLabels: name,
	}, func() float64 {
		if e.IsLeader() {
			return 1
		}
		return 0
	})
	transitions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leader_election_transitions_total", Help: "What became of this node.", ConstLabels: name,
	}, []string{"to"})
	to := func(what string) func() { return transitions.WithLabelValues(what).Inc }
	leads, recovered, released, lost := to("leader"), to("recovered"), to("released"), to("lost")
	e.OnAcquired(func(leader.Term) { leads() })
	e.OnRecovered(func(leader.Term) { recovered() })
	e.OnReleased(func(leader.Term) { released() })
	e.OnLost(func(leader.Term, error) { lost() })
	registry := prometheus.NewRegistry()
	registry.MustRegister(status, transitions)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
