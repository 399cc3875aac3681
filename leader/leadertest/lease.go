package leadertest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

var leaseCases = []testCase{
	{"renewals keep leadership beyond its ttl", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		tick := time.NewTicker(s.ttl / 4)
		defer tick.Stop()
		for renewed, good := time.Now(), 0; good < 12; {
			<-tick.C
			began := time.Now()
			if err := s.renew(a, "a"); err == nil {
				renewed, good = began, good+1
				s.confirmed = began
				s.refuse(b, "b")
				continue
			} else if time.Since(renewed) < s.ttl*4/5 { // a node stops leading some time before its lease ends
				require.NoError(s, err)
			}
			s.Log("this machine was too busy to renew in time: beginning again")
			s.succeed(a, "a")
			renewed, good = time.Now(), 0
		}
	}},
	{"leadership that is not renewed ends after its ttl and not before", func(s *suite) {
		a, b := s.backend(), s.backend()
		began := time.Now()
		s.lead(a, "a")
		s.succeed(b, "b")
		assert.GreaterOrEqual(s, time.Since(began), s.ttl)
		assert.ErrorIs(s, s.renew(a, "a"), driver.ErrLost)
		s.keep(b, "b")
	}},
	{"a renewal after a loss fails, also if the same identity leads again", func(s *suite) {
		old, successor := s.backend(), s.backend()
		s.lead(old, "a")
		s.endLeadership(old)
		s.succeed(successor, "a")
		require.Error(s, s.renew(old, "a"))
		require.Error(s, s.renew(old, "a"), "nor does it ever succeed")
		s.release(old, "a")
		s.keep(successor, "a")
		s.refuse(old, "a")
		s.release(successor, "a")
		s.lead(old, "a")
		s.keep(old, "a")
	}},
	{"a loss is reported", func(s *suite) {
		a := s.backend()
		losses := needs[driver.LossNotifier](s, a)
		for range 2 {
			s.succeed(a, "a")
			lost := losses.Lost()
			select {
			case <-lost:
				s.hurry()
				require.Fail(s, "a loss is reported of leadership that is held")
			default:
			}
			s.endLeadership(a)
			select {
			case <-lost:
			case <-time.After(s.bound()):
				require.Fail(s, "a loss is never reported")
			}
			ended, cancel := context.WithCancel(s.Context())
			cancel()
			require.ErrorIs(s, a.Renew(ended, "a", s.ttl), driver.ErrLost, "also if ctx has ended")
			s.release(a, "a")
		}
	}},
	{"a node that is cut off hangs no longer than its ctx, and loses", func(s *suite) {
		if s.h.Cut == nil {
			s.Skip("the harness cannot cut")
		}
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		heal := s.h.Cut(s.T, a)
		ctx, cancel := context.WithTimeout(s.Context(), s.ttl/4)
		defer cancel()
		require.Error(s, a.Renew(ctx, "a", s.ttl))
		s.succeed(b, "b")
		term := driver.Term{}
		if termer, ok := b.(driver.Termer); ok {
			term = termer.Term()
		}
		heal()
		require.Error(s, s.renew(a, "a"))
		ctx, cancel = context.WithTimeout(s.Context(), s.bound())
		defer cancel()
		_ = a.Release(ctx, "a")
		shut(a)
		s.eventually(func() bool { // the first attempt may still be affected by the cut
			ok, err := s.try(a, "a")
			if ok {
				s.hurry()
			}
			require.False(s, ok, "two leaders")
			if err != nil {
				shut(a)
			}
			return err == nil
		}, "a node that is healed never takes part again")
		if termer, ok := b.(driver.Termer); ok {
			assert.Equal(s, term, termer.Term())
		}
	}},
}
