package leadertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

// within returns the context of one look.
func (s *suite) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), s.bound())
}

var observeCases = []testCase{
	{"a follower observes who leads", func(s *suite) {
		a, b := s.backend(), s.backend()
		observer := needs[driver.Observer](s, b)
		observe := func() (driver.Holder, bool) {
			s.Helper()
			ctx, cancel := s.within()
			defer cancel()
			holder, ok, err := observer.Observe(ctx)
			s.called()
			if err != nil {
				s.excuse()
			}
			require.NoError(s, err)
			return holder, ok
		}
		s.lead(a, "a")
		stop := s.keepLeading(a, "a")
		s.refuse(b, "b")
		holder, ok := observe()
		if !ok {
			stop() // stop gives up the case if the lease has ended
		}
		require.True(s, ok)
		assert.Equal(s, "a", holder.Identity)
		if termer, counts := a.(driver.Termer); counts {
			assert.Equal(s, termer.Term(), holder.Term)
		}
		ctx, cancel := context.WithCancel(s.Context())
		over := s.waiting(ctx, b)
		cancel()
		s.dropped = errors.Is(s.outcome(over), driver.ErrConnection)
		again, ok := observe()
		if !ok {
			stop()
		}
		require.True(s, ok, "after a wait, too")
		assert.Equal(s, holder, again)
		stop()
		s.release(a, "a")
		_, ok = observe()
		assert.False(s, ok, "nobody leads")
		s.succeed(b, "b")
		s.keep(b, "b")
	}},
	{"a node knows whether another candidate waits", func(s *suite) {
		a, b := s.backend(), s.backend()
		contest := needs[driver.Contest](s, a)
		contested := func() bool {
			s.Helper()
			ctx, cancel := s.within()
			defer cancel()
			others, err := contest.Contested(ctx)
			s.called()
			if err != nil {
				s.excuse()
			}
			require.NoError(s, err)
			return others
		}
		s.lead(a, "a")
		s.refuse(b, "b")
		s.release(a, "a")
		assert.False(s, contested())
		s.lead(a, "a")
		s.refuse(b, "b")
		over := s.waiting(s.Context(), b)
		s.eventually(func() bool {
			s.keep(a, "a")
			return contested()
		}, "a candidate that waits is never seen")
		s.confirmed = time.Now()
		s.release(a, "a")
		still := func(why string) {
			s.Helper()
			others := contested()
			if !others {
				s.hurry() // a leadership held by a wait ends with its lease
			}
			assert.True(s, others, why)
		}
		still("it waits, or has what it waited for")
		s.waited(over)
		still("it has what it waited for")
		s.release(b, "b")
		s.eventually(func() bool { return !contested() }, "a candidate that has gone is seen for ever")
		s.lead(a, "a")
		s.keep(a, "a")
	}},
	{"Electors report each new leader", func(s *suite) {
		first, second := s.backend(), s.backend()
		needs[driver.Inspector](s, first)
		var mu sync.Mutex
		seen := make(map[string][]string)
		start := func(b driver.Backend, identity string) *leader.Elector {
			e, err := leader.New(leader.Config{Name: "test", Backend: b, Identity: identity, LeaseDuration: max(s.ttl, 10*time.Second), Callbacks: leader.Callbacks{
				OnNewLeader: func(h driver.Holder) {
					mu.Lock()
					defer mu.Unlock()
					seen[identity] = append(seen[identity], h.Identity)
				},
			}})
			require.NoError(s, err)
			require.NoError(s, e.Start(context.WithoutCancel(s.Context())))
			s.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), s.bound())
				defer cancel()
				assert.NoError(s, e.Shutdown(ctx))
			})
			return e
		}
		last := func(identity string) string {
			mu.Lock()
			defer mu.Unlock()
			if all := seen[identity]; len(all) > 0 {
				return all[len(all)-1]
			}
			return ""
		}
		saw := func(identity, leads string) {
			s.Helper()
			s.eventually(func() bool { return last(identity) == leads }, "%s never learns that %s leads", identity, leads)
		}
		a := start(first, "a")
		saw("a", "a")
		b := start(second, "b")
		saw("b", "a")
		holder, ok, at := b.LeaderSeen()
		assert.True(s, ok)
		assert.Equal(s, "a", holder.Identity)
		assert.WithinDuration(s, time.Now(), at, s.bound())
		ctx, cancel := s.within()
		defer cancel()
		s.eventually(func() bool {
			if a.IsLeader() { // again, before b tried
				require.NoError(s, a.StepDown(ctx))
			}
			return last("b") == "b"
		}, "b never learns that b leads")
		saw("a", "b")
	}},
}
