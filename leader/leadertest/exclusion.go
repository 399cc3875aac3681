package leadertest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

var exclusionCases = []testCase{
	{"of many nodes one leads", func(s *suite) {
		leader := s.backend()
		s.lead(leader, "a")
		for _, identity := range []string{"b", "c", "d", "e"} {
			s.refuse(s.backend(), identity)
			s.keep(leader, "a")
		}
	}},
	{"two nodes of one identity exclude each other", func(s *suite) {
		s.lead(s.backend(), "twin")
		s.refuse(s.backend(), "twin")
	}},
	{"a release frees leadership at once", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		s.release(a, "a")
		s.lead(b, "b")
		assert.Error(s, s.renew(a, "a"), "a node that released does not lead")
		s.keep(b, "b")
	}},
	{"a release of nothing is no error, and frees nothing of others", func(s *suite) {
		a, b, c := s.backend(), s.backend(), s.backend()
		s.release(b, "b")
		s.lead(a, "a")
		s.refuse(b, "b")
		s.release(b, "b")
		s.release(b, "b")
		s.release(b, "a") // by the leader's name, too
		s.refuse(c, "c")
		s.keep(a, "a")
		s.release(a, "a")
		s.release(a, "a")
		s.lead(c, "c")
		s.release(a, "a")
		s.keep(c, "c")
	}},
	{"a node can lead again after it released", func(s *suite) {
		a := s.backend()
		for range 3 {
			s.lead(a, "a")
			s.keep(a, "a")
			s.release(a, "a")
			require.Error(s, s.renew(a, "a"))
		}
	}},
	{"Close drops everything, and the next attempt starts anew", func(s *suite) {
		a, b := s.backend(), s.backend()
		closer := needs[interface{ Close() error }](s, a)
		assert.NoError(s, closer.Close(), "before the first attempt")
		s.lead(a, "a")
		assert.NoError(s, closer.Close())
		assert.NoError(s, closer.Close(), "again")
		assert.Error(s, s.renew(a, "a"), "a node that is closed does not lead")
		s.succeed(b, "b")
		s.refuse(a, "a")
		assert.Error(s, s.renew(a, "a"))
		s.release(b, "b")
		s.lead(a, "a")
		s.keep(a, "a")
	}},
	{"everybody can see who leads", func(s *suite) {
		a, b := s.backend(), s.backend()
		needs[driver.Inspector](s, a)
		look := func(who driver.Backend) (driver.Holder, bool) {
			holder, ok, err := who.(driver.Inspector).Leader(s.Context())
			require.NoError(s, err)
			return holder, ok
		}
		_, ok := look(b)
		assert.False(s, ok, "nobody leads yet")
		s.lead(a, "node-a")
		for _, who := range []driver.Backend{a, b} {
			holder, ok := look(who)
			if !ok {
				s.hurry()
			}
			require.True(s, ok)
			assert.Equal(s, "node-a", holder.Identity)
			if termer, ok := a.(driver.Termer); ok && !holder.Term.IsZero() {
				assert.Equal(s, termer.Term(), holder.Term)
			}
		}
		s.release(a, "node-a")
		_, ok = look(b)
		assert.False(s, ok, "nobody leads any more")
	}},
}
