package leadertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

// stressRounds is the number of leaderships in a stress test.
const stressRounds = 100

// A spell is a period in which a node could rely on leadership.
type spell struct {
	who      string
	from, to time.Time
	term     driver.Term
}

// spells are collected from many nodes.
type spells struct {
	mu  sync.Mutex
	all []spell
}

func (ss *spells) add(v spell) (enough bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = append(ss.all, v)
	return len(ss.all) >= stressRounds
}

var stressCases = []testCase{
	{"under concurrent attempts there are never two leaders", func(s *suite) {
		ctx, cancel := context.WithTimeout(s.Context(), 4*s.bound())
		defer cancel()
		var held spells
		var nodes sync.WaitGroup
		for i := range 5 {
			b := s.backend()
			nodes.Go(func() { s.compete(ctx, cancel, b, fmt.Sprintf("node-%d", i), &held) })
		}
		nodes.Wait()
		require.GreaterOrEqual(s, len(held.all), stressRounds, "the election stands still")
		slices.SortFunc(held.all, func(a, b spell) int { return a.from.Compare(b.from) })
		for i, b := range held.all[1:] {
			a := held.all[i]
			require.False(s, b.from.Before(a.to), "%+v and %+v lead at a time", a, b)
			require.True(s, a.term.IsZero() || cmp.Less(a.term.Uint64(), b.term.Uint64()), "%v after %v", b.term, a.term)
		}
	}},
}

// compete acts as one node: it leads for a moment, again and again.
func (s *suite) compete(ctx context.Context, enough func(), b driver.Backend, identity string, held *spells) {
	waiter, _ := b.(driver.Waiter)
	termer, _ := b.(driver.Termer)
	var m pauses
	m.begin(s.ttl / 2)
	for round := 0; ctx.Err() == nil; round++ {
		asked := time.Now()
		ok, err := s.try(b, identity)
		if m.excuse(err) {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.bound())
			_ = b.Release(end, identity)
			cancel()
			shut(b)
			continue
		}
		if !assert.NoError(s, err) {
			return
		}
		if !ok {
			m.begin(s.ttl / 2)
			soon, cancel := context.WithTimeout(ctx, s.ttl/10)
			if waiter != nil {
				_ = waiter.Wait(soon)
			} else {
				select {
				case <-time.After(time.Millisecond):
				case <-soon.Done():
				}
			}
			cancel()
			continue
		}
		v := spell{who: identity, from: time.Now()}
		if termer != nil {
			v.term = termer.Term()
		}
		if round%3 == 0 {
			if err := s.renew(b, identity); !m.excuse(err) {
				assert.NoError(s, err)
			}
		}
		v.to = time.Now()
		if latest := asked.Add(s.ttl); v.to.After(latest) {
			v.to = latest // busy machine: the node could rely on no more
		}
		if held.add(v) {
			enough()
		}
		if err := b.Release(context.WithoutCancel(ctx), identity); !m.excuse(err) {
			assert.NoError(s, err)
			m.begin(s.ttl / 2)
		}
	}
}

// pauses detect whether the machine stood still between two calls of one node, so that its session may have
// ended.
type pauses struct {
	longest time.Duration // longest time that is not a pause
	last    time.Time     // end of the last call
	paused  bool
}

// begin forgets earlier pauses.
func (m *pauses) begin(longest time.Duration) { *m = pauses{longest: longest, last: time.Now()} }

// excuse records the end of a call, and reports whether its error may come from a pause.
func (m *pauses) excuse(err error) bool {
	now := time.Now()
	m.paused = m.paused || now.Sub(m.last) > m.longest
	m.last = now
	return err != nil && m.paused
}
