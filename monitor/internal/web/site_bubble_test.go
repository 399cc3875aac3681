package web_test

import (
	"context"
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

	"github.com/pglatch/pglatch/monitor/internal/web"
)

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
			time.Sleep(seconds)
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
