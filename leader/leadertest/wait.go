package leadertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

// waiting starts Wait and returns its outcome.
func (s *suite) waiting(ctx context.Context, b driver.Backend) <-chan error {
	s.Helper()
	waiter := needs[driver.Waiter](s, b)
	over := make(chan error, 1)
	s.work.Go(func() { over <- waiter.Wait(ctx) })
	return over
}

func (s *suite) outcome(over <-chan error) error {
	s.Helper()
	select {
	case err := <-over:
		return err
	case <-time.After(s.bound()):
		require.Fail(s, "Wait does not return")
		return nil
	}
}

// waited checks that a Wait succeeded.
func (s *suite) waited(over <-chan error) {
	s.Helper()
	err := s.outcome(over)
	s.called()
	if err != nil {
		s.excuse()
	}
	require.NoError(s, err)
}

// canceled checks that a Wait ended with its ctx. A backend that had to drop its connection reports that, and
// the store may notice it later.
func (s *suite) canceled(err error) {
	s.Helper()
	s.dropped = errors.Is(err, driver.ErrConnection)
	require.ErrorIs(s, err, context.Canceled)
}

// keepLeading renews a's leadership, which was confirmed just now, until stop is called. stop gives up the
// case if a renewal came too late, and may be called again.
func (s *suite) keepLeading(a driver.Backend, identity string) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(quit) })
	renewed, late := s.confirmed, false
	s.work.Go(func() {
		defer close(ended)
		tick := time.NewTicker(s.ttl / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-quit:
				return
			case <-s.ctx.Done():
				return
			}
			began := time.Now()
			err := s.renew(a, identity)
			took := time.Since(renewed)
			late = took > s.ttl*4/5 || err != nil && took > s.ttl/2
			if late || s.ctx.Err() != nil || !assert.NoError(s, err) {
				return
			}
			renewed = began
		}
	})
	return func() {
		end()
		<-ended
		if s.confirmed = renewed; late {
			panic(errTooSlow)
		}
		s.hurry()
	}
}

var waitCases = []testCase{
	{"Wait returns when leadership is released", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		over := s.waiting(s.Context(), b)
		stop := s.keepLeading(a, "a")
		select {
		case err := <-over:
			if stop(); err != nil {
				s.called()
				s.excuse()
			}
			require.Fail(s, "Wait returns while somebody else leads", "%v", err)
		case <-time.After(s.ttl / 2):
		}
		stop()
		s.release(a, "a")
		s.waited(over)
		s.lead(b, "b")
		s.keep(b, "b")
	}},
	{"Wait returns when leadership is lost", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		over := s.waiting(s.Context(), b)
		s.endLeadership(a)
		s.waited(over)
		s.succeed(b, "b")
	}},
	{"Wait returns when its ctx ends, and holds nothing", func(s *suite) {
		a, b, c := s.backend(), s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		ctx, cancel := context.WithCancel(s.Context())
		over := s.waiting(ctx, b)
		cancel()
		err := s.outcome(over)
		require.ErrorIs(s, s.outcome(s.waiting(ctx, b)), context.Canceled, "ctx had ended before")
		s.canceled(err)
		s.release(a, "a")
		for range 5 {
			<-time.After(s.ttl / 20) // long enough for a wait that is still running to get it
			s.lead(c, "c")
			s.release(c, "c")
		}
	}},
	{"what Wait holds is freed by Release", func(s *suite) {
		a, b, c := s.backend(), s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		over := s.waiting(s.Context(), b)
		s.release(a, "a")
		s.waited(over)
		s.release(b, "b") // instead of an attempt, as if a stop came between
		s.lead(c, "c")
		s.refuse(b, "b")
	}},
	{"Wait that is canceled just when leadership is freed leaks nothing", func(s *suite) {
		a, b := s.backend(), s.backend()
		for range 30 {
			s.lead(a, "a")
			s.refuse(b, "b")
			ctx, cancel := context.WithCancel(s.Context())
			over := s.waiting(ctx, b)
			go cancel()
			s.release(a, "a")
			if err := s.outcome(over); err == nil {
				s.release(b, "b")
			} else {
				s.canceled(err)
			}
		}
		s.lead(a, "a")
	}},
}
