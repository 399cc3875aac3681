package middlewaretest

import (
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

var orderCases = []testCase{
	{name: "a second request for an entity, on another replica, waits for the first", run: func(s *suite) {
		entered, proceed := make(chan struct{}, 2), make(chan struct{})
		handler := func(Exchange) string {
			entered <- struct{}{}
			<-proceed
			return "done"
		}
		first, second := s.replica(), s.replica()
		one := s.call(s.Context(), s.serve(first.config(), handler), "42")
		receive(s, entered)
		two := s.call(s.Context(), s.serve(second.config(), handler), "42")
		select {
		case <-entered:
			assert.Fail(s, "both are inside at one time")
		case key := <-second.waits:
			assert.Equal(s, Agents.ID(42), key)
		}
		close(proceed)
		for _, call := range []<-chan result{one, two} {
			r := receive(s, call)
			require.NoError(s, r.err)
			assert.Equal(s, "done", r.answer.Text)
		}
	}},
	{name: "many requests for an entity never overlap", run: func(s *suite) {
		const requests = 20
		var inside, overlaps, served atomic.Int64
		handler := func(Exchange) string {
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			served.Add(1)
			inside.Add(-1)
			return "done"
		}
		servers := [2]Server{s.serve(s.replica().config(), handler), s.serve(s.replica().config(), handler)}
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() {
				answer, err := servers[i%2].Call(s.Context(), "42")
				assert.NoError(s, err)
				assert.Equal(s, "done", answer.Text)
			})
		}
		all.Wait()
		assert.EqualValues(s, requests, served.Load())
		assert.Zero(s, overlaps.Load())
	}},
	{name: "requests for different entities run side by side", run: func(s *suite) {
		var inside sync.WaitGroup
		inside.Add(2)
		server := s.serve(s.replica().config(), func(Exchange) string {
			inside.Done()
			inside.Wait()
			return "done"
		})
		one, two := s.call(s.Context(), server, "1"), s.call(s.Context(), server, "2")
		assert.Equal(s, "done", receive(s, one).answer.Text)
		assert.Equal(s, "done", receive(s, two).answer.Text)
	}},
	{name: "the handler's context carries the lock", run: func(s *suite) {
		r := s.replica()
		server := s.serve(r.config(), func(x Exchange) string {
			_, err := r.TryAcquire(x.Context, Agents.ID(42))
			assert.ErrorIs(s, err, advisory.ErrReentrant)
			return "done"
		})
		s.served(server, "42")
		assert.Zero(s, r.Stats().Held, "and the lock ends with the request")
	}},
}
