package shardstest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// gets checks that a session eventually gets all of these.
func (s *suite) gets(o shards.Session, names ...string) {
	s.Helper()
	got := 0
	s.eventually(func() bool {
		got += len(s.claim(o, names...))
		return got == len(names)
	}, "%v become free", names)
}

var endCases = []testCase{
	{"the end of one session costs its shards only", func(s *suite) {
		b := s.node()
		dies, lives, other := s.openAlone(b, "a"), s.openOn(b, "a"), s.open("b")
		s.claim(dies, "1", "2")
		s.claim(lives, "3", "4")
		s.end(b, dies)
		s.gets(other, "1", "2")
		assert.Empty(s, s.claim(other, "3", "4"))
		_, err := lives.Renew(s.context(), s.ttl)
		require.NoError(s, err)
		assert.Contains(s, members(s.look(other)), "a", "a node is a member while one of its sessions lasts")
	}},
	{"the node learns that a session ended", func(s *suite) {
		b := s.node()
		o := s.openAlone(b, "a")
		s.claim(o, "1")
		s.end(b, o)
		other := s.open("b")
		s.gets(other, "1")
		// If a session consists of leases, the member's lease may have been renewed after the shard's.
		s.eventually(func() bool { _, is := members(s.look(other))["a"]; return !is }, "the session ends")
		if o.Lost() != nil {
			select {
			case <-o.Lost():
			case <-s.context().Done():
				require.Fail(s, "Lost is not closed")
			}
		}
		_, err := o.Renew(s.context(), s.ttl)
		require.ErrorIs(s, err, driver.ErrLost)
		_, err = o.Claim(s.context(), []string{"2"})
		require.Error(s, err, "it is over for good")
		_ = o.Release(s.context(), []string{"1"})
		assert.Empty(s, s.claim(s.open("c"), "1"), "the next owner's was not released")
	}},
	{"a session lasts as long as it is renewed", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		s.claim(a, "1")
		until := time.NewTimer(3 * s.ttl)
		defer until.Stop()
		tick := time.NewTicker(s.ttl / 4)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-tick.C:
				require.Empty(s, s.claim(b, "1"))
			case <-until.C:
				over = true
			}
		}
		lost, err := a.Renew(s.context(), s.ttl)
		require.NoError(s, err)
		assert.Empty(s, lost)
	}},
	{"a session that leaves is gone, and what it owned is free at once", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		s.claim(a, "1", "2")
		require.NoError(s, a.Leave(s.context()))
		assert.Equal(s, []string{"1", "2"}, s.claim(b, "1", "2"))
		assert.NotContains(s, members(s.look(b)), "a")
		assert.NoError(s, a.Close())
	}},
	{"what a session owned that was closed becomes free", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		s.claim(a, "1", "2")
		require.NoError(s, a.Close())
		require.NoError(s, a.Close())
		_, err := a.Renew(s.context(), s.ttl)
		require.Error(s, err, "it does not come back")
		_, err = a.Claim(s.context(), []string{"3"})
		require.Error(s, err)
		s.gets(b, "1", "2")
		s.eventually(func() bool {
			return !slices.ContainsFunc(s.look(b).Members, func(m shards.Member) bool { return m.Identity == "a" })
		}, "it is no member")
	}},
	{"calls of a node that is cut off end with their ctx, and others get what it owned", func(s *suite) {
		if s.h.Cut == nil {
			s.Skip("there is no Cut")
		}
		b := s.node()
		a, other := s.openAlone(b, "a"), s.open("b")
		s.claim(a, "1")
		heal := sync.OnceFunc(s.h.Cut(s.T, b))
		defer heal()
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := a.Look(ctx, 0); return err },
			func(ctx context.Context) error { _, err := a.Renew(ctx, s.ttl); return err },
			func(ctx context.Context) error { _, err := a.Claim(ctx, []string{"2"}); return err },
			func(ctx context.Context) error { return a.Leave(ctx) },
		} {
			ctx, cancel := context.WithTimeout(s.Context(), s.ttl/10)
			err := call(ctx)
			cancel()
			require.Error(s, err)
		}
		s.gets(other, "1", "2")
		heal()
		_, err := a.Renew(s.context(), s.ttl)
		require.Error(s, err, "it has ended meanwhile")
		assert.Empty(s, s.claim(s.open("c"), "1", "2"))
	}},
}
