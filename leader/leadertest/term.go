package leadertest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

var termCases = []testCase{
	{"each leadership has a greater term, the next one if nobody led between", func(s *suite) {
		nodes := []driver.Backend{s.backend(), s.backend(), s.backend()}
		var last driver.Term
		for i := range 9 {
			b := nodes[i%3]
			s.succeed(b, "node")
			term := s.term(b)
			if i > 0 {
				if !term.Follows(last) {
					s.excuse() // an attempt may have counted a term without time to report it
				}
				require.Positive(s, term.Compare(last), "%v after %v", term, last)
				require.True(s, term.Follows(last), "%v after %v", term, last)
			}
			s.keep(b, "node")
			require.Equal(s, term, s.term(b), "a renewal changes no term")
			last = term
			if i%4 == 3 {
				s.endLeadership(b)
			} else {
				s.release(b, "node")
			}
		}
	}},
	{"an attempt that is refused, or given up, costs no term", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		term := s.term(a)
		s.refuse(b, "b")
		if _, ok := b.(driver.Waiter); ok {
			s.release(a, "a")
			s.waited(s.waiting(s.Context(), b))
			s.release(b, "b") // b may have held leadership
		} else {
			s.release(a, "a")
		}
		s.lead(a, "a")
		if s.h.WaitSpendsTerms {
			assert.Positive(s, s.term(a).Compare(term), "%v after %v", s.term(a), term)
			return
		}
		assert.True(s, s.term(a).Follows(term), "%v after %v", s.term(a), term)
	}},
	{"a start is clean after a release, and not after a loss", func(s *suite) {
		a, b := s.backend(), s.backend()
		needs[driver.Successor](s, a)
		clean := func(b driver.Backend) bool { return b.(driver.Successor).CleanStart() }
		s.lead(a, "a")
		s.release(a, "a")
		s.hurry() // a release that comes too late does not count
		s.lead(b, "b")
		if termer, ok := b.(driver.Termer); ok && !termer.Term().IsZero() {
			assert.True(s, clean(b), "after a release")
		}
		s.endLeadership(b)
		s.succeed(a, "a")
		assert.False(s, clean(a), "after a loss")
		s.endLeadership(a)
		s.succeed(a, "a")
		assert.False(s, clean(a), "after a loss of its own")
		if closer, ok := a.(interface{ Close() error }); ok {
			require.NoError(s, closer.Close())
			s.succeed(b, "b")
			assert.False(s, clean(b), "after Close without Release")
		}
	}},
}
