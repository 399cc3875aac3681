package leadercmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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

// leaderMetrics writes an Elector's metrics in Prometheus' text format 0.0.4, with
// the names that dashboards for client-go know.
type metrics struct {
	elector     *leader.Elector
	transitions [len(transitionNames)]atomic.Int64
}

var transitionNames = [...]string{"leader", "recovered", "released", "lost"}

func newMetrics(e *leader.Elector) *metrics {
	m := &metrics{elector: e}
	e.OnAcquired(func(leader.Term) { m.transitions[0].Add(1) })
	e.OnRecovered(func(leader.Term) { m.transitions[1].Add(1) })
	e.OnReleased(func(leader.Term) { m.transitions[2].Add(1) })
	e.OnLost(func(leader.Term, error) { m.transitions[3].Add(1) })
	return m
}

func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	status, name := 0, m.elector.Name()
	if m.elector.IsLeader() {
		status = 1
	}
	var b bytes.Buffer
	b.WriteString("# HELP leader_election_master_status 1 if this node leads.\n# TYPE leader_election_master_status gauge\n")
	fmt.Fprintf(&b, "leader_election_master_status{name=%q} %d\n", name, status)
	b.WriteString("# HELP leader_election_transitions_total What became of this node.\n# TYPE leader_election_transitions_total counter\n")
	for i, to := range transitionNames {
		fmt.Fprintf(&b, "leader_election_transitions_total{name=%q,to=%q} %d\n", name, to, m.transitions[i].Load())
	}
	_, _ = w.Write(b.Bytes()) // the client has gone, else
}
