package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/processors"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/internal/web"
)

// A viewer keeps what a browser would show.
type viewer struct {
	lines *bufio.Scanner
	parts map[string]string
	rows  map[string]string
	order []string
}

// view opens a live view.
func view(t *testing.T, server *httptest.Server, target string) *viewer {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+target, http.NoBody)
	require.NoError(t, err)
	answer, err := server.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	v := &viewer{lines: bufio.NewScanner(answer.Body), parts: map[string]string{}, rows: map[string]string{}}
	v.lines.Buffer(nil, 1<<24)
	return v
}

// hear applies the next update.
func (v *viewer) hear(t *testing.T) {
	t.Helper()
	for v.lines.Scan() {
		data, ok := strings.CutPrefix(v.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var u update
		require.NoError(t, json.Unmarshal([]byte(data), &u))
		maps.Copy(v.parts, u.Parts)
		maps.Copy(v.rows, u.Rows)
		if u.Order != nil {
			v.order = u.Order
		}
		return
	}
	require.Fail(t, "the stream ended", v.lines.Err())
}

// table returns the rows that are shown.
func (v *viewer) table() (html []string) {
	for _, id := range v.order {
		html = append(html, v.rows[id])
	}
	return html
}

// serve returns the server of a page, and what gives the next State to all its viewers.
func serve(t *testing.T, config web.Config) (server *httptest.Server, show func(*web.State)) {
	t.Helper()
	type step struct {
		state *web.State
		next  chan struct{} // closed when there is a newer one
	}
	var now atomic.Pointer[step]
	now.Store(&step{next: make(chan struct{})})
	config.Next = func(ctx context.Context, last *web.State) (*web.State, error) {
		for {
			s := now.Load()
			if s.state != nil && s.state != last {
				return s.state, nil
			}
			select {
			case <-s.next:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	server = httptest.NewServer(web.New(config))
	t.Cleanup(server.Close)
	return server, func(state *web.State) { close(now.Swap(&step{state, make(chan struct{})}).next) }
}

// stored is a store of one lease, whose List runs first.
func stored(first func(ctx context.Context) error) func(ctx context.Context, _ lease.ListRequest) web.Records {
	return func(ctx context.Context, _ lease.ListRequest) web.Records {
		return func(yield func(lease.Record, error) bool) {
			if err := first(ctx); err != nil {
				yield(lease.Record{}, err)
				return
			}
			yield(lease.Record{Lease: lease.Lease{Claim: lease.Claim{Name: "nightly", Holder: "worker-1"}}, State: lease.Held}, nil)
		}
	}
}

func TestViewersOfAnAddressShareWhatIsRendered(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(1)
	var renderings atomic.Int64 // each asks the store
	server, show := serve(t, web.Config{Leases: stored(func(context.Context) error { renderings.Add(1); return nil })})
	var viewers []*viewer
	look := func() {
		state, err := w.look(t.Context())
		require.NoError(t, err)
		show(state)
	}
	look()
	for range 5 {
		viewers = append(viewers, view(t, server, "/live?view=elections"))
	}
	for range 3 {
		for _, v := range viewers {
			v.hear(t)
			assert.Contains(t, v.parts["elections"], "nightly")
		}
		look()
	}
	for _, v := range viewers {
		v.hear(t)
	}
	assert.EqualValues(t, 4, renderings.Load(), "one for each state")

	view(t, server, "/live?view=elections&x=1").hear(t)
	assert.EqualValues(t, 5, renderings.Load(), "control: another address has its own")
}

func TestAViewerThatComesLaterSeesWhatTheOthersSee(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(3)
	server, show := serve(t, web.Config{})
	look := func(locks int) {
		w.locks = locks
		state, err := w.look(t.Context())
		require.NoError(t, err)
		show(state)
	}
	look(3)
	early := view(t, server, "/live?view=")
	early.hear(t)
	before := early.table()
	look(2)
	early.hear(t)
	late, other := view(t, server, "/live?view="), view(t, server, "/live?view=&find=order/1")
	late.hear(t)
	other.hear(t)
	assert.Equal(t, early.table(), late.table())
	look(150)
	for _, v := range []*viewer{early, late, other} {
		v.hear(t)
	}
	assert.Equal(t, early.table(), late.table())
	assert.Equal(t, early.parts, late.parts)
	assert.Len(t, late.table(), 100)
	assert.NotEqual(t, before, early.table(), "control: it has changed")
	assert.NotEqual(t, early.table(), other.table(), "control: a filter is another view")
}

func TestAViewerThatLeavesDoesNotEndTheRenderingOfOthers(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(1)
	state, err := w.look(t.Context())
	require.NoError(t, err)
	entered, asked, answer := make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{})
	p := web.New(web.Config{
		Next: func(ctx context.Context, last *web.State) (*web.State, error) {
			entered <- struct{}{}
			if last != nil {
				<-ctx.Done()
			}
			return state, nil
		},
		Leases: stored(func(ctx context.Context) error {
			asked <- struct{}{}
			<-answer
			return ctx.Err()
		}),
	})
	watch := func() (leave func(), seen func() string) {
		ctx, leave := context.WithCancel(t.Context())
		w, left := &recorder{ResponseRecorder: httptest.NewRecorder(), flushed: leave}, make(chan struct{})
		go func() {
			defer close(left)
			p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/live?view=elections", nil))
		}()
		<-entered
		return leave, func() string {
			<-left
			return w.Body.String()
		}
	}
	leave, _ := watch()
	<-asked
	_, seen := watch()
	leave()
	close(answer)
	body := seen()
	assert.Contains(t, body, "nightly")
	assert.NotContains(t, body, "does not answer")
	assert.Empty(t, asked, "control: the rendering of the first viewer is what the second one sees")
}

func TestViewersOfAListShareALookAndWhatIsRendered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld(1)
		var state *web.State
		for range 5 { // until a verdict says that it is held for long
			var err error
			state, err = w.look(t.Context())
			require.NoError(t, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var looks atomic.Int64
		look := func(context.Context) (*web.State, error) { looks.Add(1); return state, nil }
		open := func() *web.Site { return web.NewSite([]web.Database{{Name: "prod", Look: look}}, nil) }
		var viewers sync.WaitGroup
		watch := func(site *web.Site) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			viewers.Go(func() { site.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/live", nil)) })
			return w
		}
		views := func(seconds time.Duration, watched ...*httptest.ResponseRecorder) (bodies []string) {
			bubble.Sleep(seconds)
			synctest.Wait()
			for _, w := range watched {
				bodies = append(bodies, w.Body.String())
			}
			return bodies
		}
		site := open()
		first, second := watch(site), watch(site)
		views(700 * time.Millisecond)
		late := watch(site)
		seen := views(2800*time.Millisecond, first, second, late)
		assert.EqualValues(t, 4, looks.Load(), "at 0, 0.7, 1.7 and 2.7 s: the late one brings the others along")
		assert.Equal(t, seen[0], seen[1])
		assert.Equal(t, 4, strings.Count(seen[0], "event: view\n"))
		assert.Equal(t, 3, strings.Count(seen[2], "event: view\n"))
		_, after, _ := strings.Cut(seen[0], "\n\n")
		_, after, _ = strings.Cut(after, "\n\n")
		assert.True(t, strings.HasSuffix(seen[2], after), "they see the same: %s", after)
		assert.Contains(t, seen[2], "order/0", "control: all of it, when it came")
		assert.NotContains(t, after, "order/0", "control: then what has changed")

		looks.Store(0)
		watch(open())
		views(100 * time.Millisecond)
		assert.EqualValues(t, 1, looks.Load(), "control: another list has its own")
		leave()
		viewers.Wait()
	})
}

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
	before := processors.Used(b)
	for i := 1; b.Loop(); i++ {
		next(i)
		for range benchViewers {
			<-sent
		}
	}
	b.ReportMetric(float64((processors.Used(b)-before).Microseconds())/float64(b.N)/benchViewers, "processor-µs/event")
}
