package leadertest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

var permanentCases = []testCase{
	{"a mistake that no attempt mends is reported as permanent", func(s *suite) {
		if len(s.h.Mistakes) == 0 {
			s.Skip("Harness.Mistakes is empty")
		}
		for name, make := range s.h.Mistakes {
			b := make(s.T)
			var err error
			s.eventually(func() bool {
				began := time.Now()
				var ok bool
				ok, err = s.try(b, "a")
				assert.False(s, ok, name)
				return errors.Is(err, driver.ErrPermanent) || time.Since(began) < s.ttl/2 // a longer attempt had no time to detect the mistake
			}, "%s: no attempt has an end", name)
			require.ErrorIs(s, err, driver.ErrPermanent, name)
			require.NotErrorIs(s, err, driver.ErrLost, name)
			assert.NotContains(s, err.Error(), driver.ErrConnection.Error(), "%s: the text begins with what is wrong", name)
			assert.NotContains(s, err.Error(), driver.ErrPermanent.Error(), "%s: the text begins with what is wrong", name)
			_ = b.Release(s.Context(), "a") // an Elector does so after each attempt that failed
			shut(b)
		}
	}},
	{"an outage is not reported as permanent", func(s *suite) {
		if s.h.Cut == nil {
			s.Skip("Harness.Cut is nil")
		}
		a := s.backend()
		heal := s.h.Cut(s.T, a)
		defer heal()
		ctx, cancel := context.WithTimeout(s.Context(), min(s.ttl, time.Second))
		defer cancel()
		ok, err := a.TryAcquire(ctx, "a", s.ttl)
		assert.False(s, ok)
		require.Error(s, err)
		require.NotErrorIs(s, err, driver.ErrPermanent)
	}},
}
