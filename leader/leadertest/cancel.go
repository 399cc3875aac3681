package leadertest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowEnd is how long after the end of its ctx an attempt may have dropped its connection. The store may
// notice that only after the Release.
const slowEnd = 200 * time.Millisecond

var cancelCases = []testCase{
	{"an attempt whose ctx has ended acquires nothing", func(s *suite) {
		a, b := s.backend(), s.backend()
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		ok, err := a.TryAcquire(ctx, "a", s.ttl)
		require.Error(s, err)
		assert.False(s, ok)
		s.release(a, "a")
		s.lead(b, "b")
	}},
	{"an attempt that is canceled half way leaves nothing after Release", func(s *suite) {
		a, b := s.backend(), s.backend()
		for patience := 20 * time.Microsecond; patience < 20*time.Millisecond; patience = patience * 3 / 2 {
			ctx, cancel := context.WithTimeout(s.Context(), patience)
			began := time.Now()
			ok, err := a.TryAcquire(ctx, "a", s.ttl)
			cancel()
			s.dropped = time.Since(began) > patience+slowEnd
			require.False(s, ok && err != nil, "no leadership comes with an error")
			if err == nil {
				require.True(s, ok)
				s.confirmed = began
				s.keep(a, "a")
			}
			s.release(a, "a")
			s.lead(b, "b")
			s.release(b, "b")
		}
	}},
	{"an attempt that is canceled half way leaves nothing after Close", func(s *suite) {
		a, b := s.backend(), s.backend()
		needs[interface{ Close() error }](s, a)
		for patience := 20 * time.Microsecond; patience < 20*time.Millisecond; patience *= 3 {
			ctx, cancel := context.WithTimeout(s.Context(), patience)
			_, _ = a.TryAcquire(ctx, "a", s.ttl)
			cancel()
			shut(a)
			s.succeed(b, "b")
			s.release(b, "b")
		}
	}},
}
