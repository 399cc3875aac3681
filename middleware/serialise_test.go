package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestScenario_ConcurrentHooksForSameAgent(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			waiting := make(waits, 1)
			var state atomic.Int64
			seen := make(chan int64, 2)
			entered, proceed := make(chan struct{}, 2), make(chan struct{})
			handler := func(w http.ResponseWriter, _ *http.Request) {
				now := state.Load()
				entered <- struct{}{}
				<-proceed
				state.Store(now + 1)
				seen <- now
				w.WriteHeader(http.StatusNoContent)
			}
			first := build(t, byPath(open(t, advisory.Config{DSN: dsn})), handler)
			second := build(t, byPath(open(t, advisory.Config{DSN: dsn, Tracer: waiting.tracer()})), handler) // another replica

			codes := make(chan int, 2)
			go func() { codes <- post(t.Context(), first, "/agents/42").Code }()
			receive(t, entered)
			go func() { codes <- post(t.Context(), second, "/agents/42").Code }()
			assert.Equal(t, agents.ID(42), receive(t, waiting))
			assert.Empty(t, entered, "the second one waits")
			close(proceed)

			assert.Equal(t, http.StatusNoContent, receive(t, codes))
			assert.Equal(t, http.StatusNoContent, receive(t, codes))
			assert.Equal(t, int64(0), <-seen)
			assert.Equal(t, int64(1), <-seen, "the second one works with what the first one left")
		})
	}
}

func TestScenario_HooksForDifferentAgents(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inside sync.WaitGroup
			inside.Add(2)
			all := make(chan struct{})
			go func() { inside.Wait(); close(all) }()
			h := build(t, byPath(open(t, advisory.Config{DSN: pgtest.DSN(t)})), func(w http.ResponseWriter, r *http.Request) {
				inside.Done()
				select {
				case <-all:
					w.WriteHeader(http.StatusNoContent)
				case <-r.Context().Done():
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			codes := make(chan int, 2)
			for _, path := range []string{"/agents/1", "/agents/2"} {
				go func() { codes <- post(ctx, h, path).Code }()
			}
			assert.Equal(t, http.StatusNoContent, receive(t, codes))
			assert.Equal(t, http.StatusNoContent, receive(t, codes), "both were inside at one time")
		})
	}
}

func TestScenario_ReadOnlyHookRoute(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 1})
			hold(t, locker, agents.ID(42)) // the key and the whole pool are taken
			before := locker.Stats()
			c := byPath(locker)
			c.Key = func(*http.Request) (namespace.Key, error) { panic("no key is looked for") }
			h := build(t, c, ok)
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, "/agents/42", nil))
				assert.Equal(t, http.StatusNoContent, rec.Code, method)
			}
			assert.Equal(t, before.Acquired, locker.Stats().Acquired)
		})
	}
}

func TestARouteExcludesTheSameEntityTakenByNumber(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker := open(t, advisory.Config{DSN: pgtest.DSN(t)})
			c := byPath(locker)
			c.Skip, c.Label = true, "stop"
			h := build(t, c, func(w http.ResponseWriter, r *http.Request) {
				ran, err := locker.DoOrSkip(t.Context(), agents.ID(42), func(context.Context) error { return nil })
				assert.NoError(t, err)
				assert.False(t, ran, "the job skips the agent that the request holds")
				for held := range locker.Held() {
					assert.Equal(t, "stop", held.Label)
				}
				ok(w, r)
			})
			require.Equal(t, http.StatusNoContent, post(t.Context(), h, "/agents/42").Code)

			err := locker.Do(t.Context(), agents.ID(42), func(ctx context.Context) error {
				assert.Equal(t, http.StatusLocked, post(t.Context(), h, "/agents/42").Code, "the request finds the job")
				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, http.StatusNoContent, post(t.Context(), h, "/agents/42").Code, "control: free again")
		})
	}
}

func TestSharedRequestsRunSideBySide(t *testing.T) {
	t.Parallel()
	locker := open(t, advisory.Config{DSN: pgtest.DSN(t)})
	c := byPath(locker)
	c.Shared, c.Skip = true, true
	h := stacks["net_http"](t, c, ok)
	lock := hold(t, locker.With(advisory.Options{Shared: true}), agents.ID(1))
	assert.Equal(t, http.StatusNoContent, post(t.Context(), h, "/agents/1").Code)
	require.NoError(t, lock.Release())
	hold(t, locker, agents.ID(1))
	assert.Equal(t, http.StatusLocked, post(t.Context(), h, "/agents/1").Code, "control: an exclusive holder")
}
