package middlewaretest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

var clientCases = []testCase{
	{
		name: "a client that leaves while it waits leaves the line, and its handler does not run", needs: SeesDisconnects,
		run: func(s *suite) {
			served := make(chan struct{}, 2)
			lock, r, server := s.leaveWaiting(served)
			defer func() { _ = lock.Release() }() // a server waits for its requests
			err := receive(s, r.fails)
			require.ErrorIs(s, err, context.Canceled, "while the lock is held")
			require.NoError(s, lock.Release())
			s.served(server, "42")
			assert.Len(s, served, 1, "only the client that stayed is served")
		},
		without: func(s *suite) {
			served := make(chan struct{}, 2)
			lock, _, _ := s.leaveWaiting(served)
			require.NoError(s, lock.Release())
			receive(s, served)
		},
	},
	{
		name: "a client that leaves while its handler runs ends the handler's context", needs: SeesDisconnects,
		run: func(s *suite) {
			r := s.replica()
			entered, ended := make(chan struct{}), make(chan struct{})
			server := s.serve(r.config(), func(x Exchange) string {
				if x.ID == "42" {
					close(entered)
					receive(s, x.Context.Done())
					close(ended)
				}
				return ""
			})
			ctx, leave := context.WithCancel(s.Context())
			defer leave()
			result := s.call(ctx, server, "42")
			receive(s, entered)
			leave()
			receive(s, ended)
			assert.Error(s, receive(s, result).err)
			lock, err := r.Acquire(s.Context(), Agents.ID(42)) // it becomes free
			require.NoError(s, err)
			require.NoError(s, lock.Release())
			s.served(server, "43") // the control
		},
	},
}

// leaveWaiting makes a client leave while it waits for a held lock.
func (s *suite) leaveWaiting(served chan<- struct{}) (*advisory.Lock, replica, Server) {
	s.Helper()
	r := s.replica()
	lock := s.hold(r)
	server := s.serve(r.config(), func(Exchange) string {
		served <- struct{}{}
		return ""
	})
	ctx, leave := context.WithCancel(s.Context())
	defer leave()
	result := s.call(ctx, server, "42")
	assert.Equal(s, Agents.ID(42), receive(s, r.waits))
	leave()
	assert.Error(s, receive(s, result).err)
	return lock, r, server
}
