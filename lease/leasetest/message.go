package leasetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// A listener receives messages.
type listener struct {
	s     *suite
	end   context.CancelFunc
	ended chan struct{}
	err   error // what Listen returned, once it has ended

	mu  sync.Mutex
	all []string
}

// another returns one more store on the data of the first; the same one if the harness cannot open
// another.
func (s *suite) another() lease.Store {
	s.Helper()
	if s.h.Another == nil {
		return s.store
	}
	return s.h.Another(s.T, s.store)
}

// listen returns when it listens, and registers its end with the test.
func (s *suite) listen(m lease.Messenger) *listener {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	l := &listener{s: s, end: cancel, ended: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(l.ended)
		l.err = m.Listen(ctx, func() { close(ready) }, func(message string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.all = append(l.all, message)
		})
	}()
	s.Cleanup(func() {
		cancel()
		<-l.ended
	})
	select {
	case <-ready:
	case <-l.ended:
		require.Fail(s, "it does not listen", "%v", l.err)
	}
	return l
}

// until returns the messages received up to and including message.
func (l *listener) until(message string) []string {
	l.s.Helper()
	var heard []string
	l.s.eventually(func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		heard = slices.Clone(l.all)
		return slices.Contains(heard, message)
	}, "%.40q is not heard", message)
	return heard
}

func (s *suite) send(m lease.Messenger, messages ...string) {
	s.Helper()
	require.NoError(s, m.Send(s.Context(), messages))
}

var messageCases = []testCase{
	{"messages: all who listen hear those of all who send, in one order, and the sender's own in its", func(s *suite) {
		senders := []lease.Messenger{capability[lease.Messenger](s, s.store), capability[lease.Messenger](s, s.another())}
		first, second := s.listen(senders[0]), s.listen(senders[1])
		const sendings, each = 20, 5
		var wg sync.WaitGroup
		for i, m := range senders {
			wg.Go(func() {
				for n := range sendings {
					var messages []string
					for k := range each {
						messages = append(messages, fmt.Sprintf("sender %d says %03d", i, n*each+k))
					}
					if err := m.Send(s.Context(), messages); err != nil {
						s.Errorf("sending: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		s.send(senders[0], "the end")
		heard := first.until("the end")
		require.Equal(s, heard, second.until("the end"))
		for i := range senders {
			var own []string
			for _, m := range heard {
				if strings.HasPrefix(m, fmt.Sprintf("sender %d", i)) {
					own = append(own, m)
				}
			}
			require.Len(s, own, sendings*each, "none was lost: nothing failed")
			require.True(s, slices.IsSorted(own), "%v", own)
		}
	}},
	{"messages: what was sent before somebody listens is not for it", func(s *suite) {
		m := capability[lease.Messenger](s, s.store)
		s.send(m, "before")
		l := s.listen(m)
		s.send(m, "after")
		require.Equal(s, []string{"after"}, l.until("after"))
	}},
	{"messages: each is any text of at most 1,024 bytes, and there may be many or none", func(s *suite) {
		m := capability[lease.Messenger](s, s.another())
		l := s.listen(capability[lease.Messenger](s, s.store))
		s.send(m)
		messages := []string{`"quoted", and a \ and `, "two\nlines", "ünïcödé ☃ 𝄞", " spaces ", strings.Repeat("x", 1024)}
		for i := range 300 {
			messages = append(messages, fmt.Sprintf("%03d%s", i, strings.Repeat("y", 1000)))
		}
		messages = append(messages, "the end")
		s.send(m, messages...)
		require.Equal(s, messages, l.until("the end"))
	}},
	{"messages: who does not listen any more hears nothing, and the others do", func(s *suite) {
		m := capability[lease.Messenger](s, s.store)
		gone, stays := s.listen(m), s.listen(capability[lease.Messenger](s, s.another()))
		gone.end()
		<-gone.ended
		require.ErrorIs(s, gone.err, context.Canceled)
		s.send(m, "after")
		require.Equal(s, []string{"after"}, stays.until("after"))
		require.Empty(s, gone.all)
	}},
	{"messages: leases know nothing of them", func(s *suite) {
		m := capability[lease.Messenger](s, s.store)
		l := s.acquire(request("job", "a"))
		s.unchanged(func() { s.send(m, "job", "free x 1 job") })
		require.Len(s, s.list(lease.ListRequest{}), 1)
		require.Equal(s, 1, s.sweep(lease.SweepRequest{}).Held)
		s.release(l.Claim)
	}},
}
