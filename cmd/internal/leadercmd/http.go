package leadercmd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// serveLeader serves an Elector's state until stop. With an empty address it serves nothing.
func serveLeader(ctx context.Context, app *program.App, address string, elector *leader.Elector, m *metrics) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &program.ExitError{Code: program.ExitFailure, Err: fmt.Errorf("--http: %w", err)}
	}
	mux := http.NewServeMux()
	mux.Handle("/", elector.Handler())
	mux.Handle("GET /metrics", m.of(elector))
	app.Logger().Info("serving", slog.String("address", listener.Addr().String()))
	return background.Run(context.WithoutCancel(ctx), func(ctx context.Context) {
		if err := program.Serve(ctx, listener, mux); err != nil {
			app.Logger().Error("serving ended", slog.Any("error", err))
		}
	}), nil
}

// metrics are an Elector's metrics, with the names that dashboards for client-go use.
type metrics struct {
	name        prometheus.Labels
	transitions *prometheus.CounterVec
}

func newMetrics(election string) *metrics {
	name := prometheus.Labels{"name": election}
	return &metrics{name, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leader_election_transitions_total", Help: "What became of this node.", ConstLabels: name,
	}, []string{"to"})}
}

// callbacks returns callbacks that count the transitions.
func (m *metrics) callbacks() leader.Callbacks {
	to := func(what string) func() { return m.transitions.WithLabelValues(what).Inc }
	leads, recovered, released, lost := to("leader"), to("recovered"), to("released"), to("lost")
	return leader.Callbacks{
		OnAcquired:  func(leader.Term) { leads() },
		OnRecovered: func(leader.Term) { recovered() },
		OnReleased:  func(leader.Term) { released() },
		OnLost:      func(leader.Term, error) { lost() },
	}
}

// of returns a handler that serves the metrics of an Elector made with the callbacks.
func (m *metrics) of(e *leader.Elector) http.Handler {
	registry := prometheus.NewRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"database": e.Database()}, registry).MustRegister(m.transitions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "1 if this node leads.", ConstLabels: m.name,
	}, func() float64 {
		if e.IsLeader() {
			return 1
		}
		return 0
	}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
