package leadertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/leader/driver"
)

// stressRounds is the number of leaderships in a stress test.
const stressRounds = 100

// spells are the times in which nodes could rely on leadership.
type spells struct {
	began time.Time
	mu    sync.Mutex
	all   []judge.Hold
}

func (ss *spells) add(who string, term driver.Term, from, to time.Time) (enough bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all = append(ss.all, judge.Hold{
		Who: who, Token: term.Uint64(), Begin: judge.At(int64(from.Sub(ss.began))), End: judge.At(int64(to.Sub(ss.began))),
	})
	return len(ss.all) >= stressRounds
}

var stressCases = []testCase{
	{"under concurrent attempts there are never two leaders", func(s *suite) {
		ctx, cancel := context.WithTimeout(s.Context(), 4*s.bound())
		defer cancel()
		held := spells{began: time.Now()}
		var nodes sync.WaitGroup
		for i := range 5 {
			b := s.backend()
			nodes.Go(func() { s.compete(ctx, cancel, b, fmt.Sprintf("node-%d", i), &held) })
		}
		nodes.Wait()
		require.GreaterOrEqual(s, len(held.all), stressRounds, "the election stands still")
		require.NoError(s, judge.Holds(held.all, 1))
		termless := 0
		for _, h := range held.all {
			if h.Token == 0 {
				termless++
			}
		}
		require.Contains(s, []int{0, len(held.all)}, termless, "all leaderships have terms, or none")
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
		from, term := time.Now(), driver.Term{}
		if termer != nil {
			term = termer.Term()
		}
		if round%3 == 0 {
			if err := s.renew(b, identity); !m.excuse(err) {
				assert.NoError(s, err)
			}
		}
		to := time.Now()
		if latest := asked.Add(s.ttl); to.After(latest) {
			to = latest // busy machine: the node could rely on no more
		}
		if held.add(identity, term, from, to) {
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
