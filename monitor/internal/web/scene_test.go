package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
