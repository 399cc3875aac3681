package leadertest

import (
	"context"
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
	go func() { over <- waiter.Wait(ctx) }()
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

// keepLeading renews a's leadership until the returned function is called.
func (s *suite) keepLeading(a driver.Backend, identity string) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.ttl / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				assert.NoError(s, s.renew(a, identity))
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
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
			require.Fail(s, "Wait returns while somebody else leads", "%v", err)
		case <-time.After(s.ttl / 2):
		}
		stop()
		s.release(a, "a")
		require.NoError(s, s.outcome(over))
		s.lead(b, "b")
		s.keep(b, "b")
	}},
	{"Wait returns when leadership is lost", func(s *suite) {
		a, b := s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		over := s.waiting(s.Context(), b)
		s.endLeadership(a)
		require.NoError(s, s.outcome(over))
		s.succeed(b, "b")
	}},
	{"Wait returns when its ctx ends, and holds nothing", func(s *suite) {
		a, b, c := s.backend(), s.backend(), s.backend()
		s.lead(a, "a")
		s.refuse(b, "b")
		ctx, cancel := context.WithCancel(s.Context())
		over := s.waiting(ctx, b)
		cancel()
		require.ErrorIs(s, s.outcome(over), context.Canceled)
		require.ErrorIs(s, s.outcome(s.waiting(ctx, b)), context.Canceled, "ctx had ended before")
		s.release(a, "a")
		for range 5 {
			<-time.After(s.ttl / 20) // in which a wait that goes on would get it
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
		require.NoError(s, s.outcome(over))
		s.release(b, "b") // in place of the attempt: a stop came between
		s.lead(c, "c")
		s.refuse(b, "b")
	}},
	{"Wait that is cancelled just when leadership is freed leaks nothing", func(s *suite) {
		a, b := s.backend(), s.backend()
		for range 30 {
			s.lead(a, "a")
			s.refuse(b, "b")
			ctx, cancel := context.WithCancel(s.Context())
			over := s.waiting(ctx, b)
			go cancel()
			s.release(a, "a")
			if s.outcome(over) == nil {
				s.release(b, "b")
			}
		}
		s.lead(a, "a")
	}},
}
