package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/monitor/internal/web"
)

// BenchmarkViewers is what an update of 300 viewers of 20,000 locks costs, without a database and without clients.
func BenchmarkViewers(b *testing.B) {
	const viewers = 300
	w, _ := newWorld(20_000)
	for range 5 { // until a verdict says that they are held for long
		_, err := w.look(b.Context())
		require.NoError(b, err)
	}
	states, sent := make(chan *web.State, viewers), make(chan struct{}, viewers)
	p := web.New(web.Config{Next: func(ctx context.Context, _ *web.State) (*web.State, error) {
		select {
		case s := <-states:
			return s, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	for range viewers {
		go p.ServeHTTP(&recorder{httptest.NewRecorder(), func() { sent <- struct{}{} }}, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/live?view=", nil))
	}
	used := time.Duration(0)
	for b.Loop() {
		state, err := w.look(b.Context())
		require.NoError(b, err)
		before := processors(b)
		for range viewers {
			states <- state
		}
		for range viewers {
			<-sent
		}
		used += processors(b) - before
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N)/viewers, "processor-µs/event")
}

// processors is what this process used of them.
func processors(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
