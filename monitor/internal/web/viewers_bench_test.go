package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/monitor/internal/web"
)

const benchViewers = 300

// BenchmarkViewers is what an update of 300 viewers of 20,000 locks costs, without a database and without clients.
func BenchmarkViewers(b *testing.B) {
	b.Run("page of a database", func(b *testing.B) {
		states := make(chan *web.State, benchViewers)
		p := web.New(web.Config{Next: func(ctx context.Context, _ *web.State) (*web.State, error) {
			select {
			case s := <-states:
				return s, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}})
		benchViews(b, p, func(state *web.State) {
			for range benchViewers {
				states <- state
			}
		})
	})
	b.Run("list of two databases", func(b *testing.B) {
		var now atomic.Pointer[web.State] // a viewer asks once a second
		look := func(context.Context) (*web.State, error) { return now.Load(), nil }
		benchViews(b, web.NewSite([]web.Database{{Name: "prod", Look: look}, {Name: "staging", Look: look}}, nil), now.Store)
	})
}

// benchViews measures events of a handler. show shows its viewers a state.
func benchViews(b *testing.B, h http.Handler, show func(*web.State)) {
	b.Helper()
	w, _ := newWorld(20_000)
	var states [2]*web.State
	for i := range 6 { // until a verdict says that the locks are held for long
		state, err := w.look(b.Context())
		require.NoError(b, err)
		states[i%2] = state
	}
	next := func(i int) {
		state := *states[i%2]
		state.Ended = time.Now()
		show(&state)
	}
	next(0)
	sent := make(chan struct{}, benchViewers)
	for range benchViewers {
		go h.ServeHTTP(&recorder{httptest.NewRecorder(), func() { sent <- struct{}{} }}, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/live?view=", nil))
	}
	for range benchViewers { // each has the whole view
		<-sent
	}
	before := processors(b)
	for i := 1; b.Loop(); i++ {
		next(i)
		for range benchViewers {
			<-sent
		}
	}
	b.ReportMetric(float64((processors(b)-before).Microseconds())/float64(b.N)/benchViewers, "processor-µs/event")
}

// processors is what this process used of them.
func processors(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
