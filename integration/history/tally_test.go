//go:build integration

package history

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/tally"
)

// tally reports a fight: its acquisitions, the sessions that were ended, and the longest window.
func (c *counters) tally(t *testing.T, holds []judge.Hold, total report) {
	t.Helper()
	tally.Count(t, "acquisitions", len(holds))
	tally.Count(t, "lost", int(total.Lost))
	tally.Count(t, "transactions", int(total.InTx))
	if c.killing {
		tally.Faults(t, tally.Fault{Name: "session ended", Times: int(c.kills.Load()), Overlap: new(window(holds, total.Spans))})
	}
}

// A span is a lost hold, from its grant until its holder knew of the loss.
type span struct {
	Key           string
	Granted, Told int64
}

// learns returns a function that returns when the holder of a lock learned of its loss: when its context ended.
func learns(lock *advisory.Lock) (told func() int64) {
	var at atomic.Int64
	if lock != nil {
		context.AfterFunc(lock.Context(), func() { at.Store(monotonic()) })
	}
	return func() int64 { return cmp.Or(at.Load(), monotonic()) }
}

func (f *fighter) lostSpan(key, granted, told int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Spans = append(f.report.Spans, span{agents.ID(key).String(), granted, told})
}

// window returns the longest time for which a holder that had lost its lock did not know so, while another had it.
func window(holds []judge.Hold, lost []span) (longest time.Duration) {
	for _, s := range lost {
		for _, h := range holds {
			if h.Key == s.Key && h.Begin.Latest > s.Granted && h.Begin.Latest < s.Told {
				longest = max(longest, time.Duration(s.Told-h.Begin.Latest))
			}
		}
	}
	return longest
}

func TestAWindowIsForHowLongAHolderDidNotKnow(t *testing.T) {
	t.Parallel()
	hold := func(key string, begin int64) judge.Hold { return judge.Hold{Key: key, Begin: judge.At(begin)} }
	lost := []span{{"a", 1, 8}, {"a", 7, 7}, {"b", 5, 9}}
	assert.Zero(t, window([]judge.Hold{hold("a", 1), hold("a", 8), hold("b", 5), hold("b", 2), hold("c", 6)}, lost))
	assert.EqualValues(t, 3, window([]judge.Hold{hold("a", 6), hold("a", 5), hold("b", 7)}, lost))
}
