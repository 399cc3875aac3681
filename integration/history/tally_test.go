//go:build integration

package history

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
		tally.Faults(t, tally.Fault{Name: "session ended", Times: int(c.kills.Load()), Overlap: window(holds)})
	}
}

// window returns the longest time from the beginning of a hold until the holder before it knew of its end.
func window(holds []judge.Hold) (longest time.Duration) {
	holds = slices.Clone(holds)
	slices.SortFunc(holds, func(a, b judge.Hold) int { return cmp.Compare(a.Begin.Latest, b.Begin.Latest) })
	ends := map[string]int64{}
	for _, h := range holds {
		if end, ok := ends[h.Key]; ok {
			longest = max(longest, time.Duration(end-h.Begin.Latest))
		}
		ends[h.Key] = max(ends[h.Key], h.End.Latest)
	}
	return longest
}

func TestAWindowIsForHowLongAHolderDidNotKnow(t *testing.T) {
	t.Parallel()
	hold := func(key string, begin, end int64) judge.Hold {
		return judge.Hold{Key: key, Begin: judge.At(begin), End: judge.Moment{Earliest: begin, Latest: end}}
	}
	assert.Zero(t, window([]judge.Hold{hold("a", 5, 9), hold("a", 1, 5), hold("b", 1, 9)}))
	assert.EqualValues(t, 3, window([]judge.Hold{hold("a", 1, 8), hold("a", 5, 6), hold("a", 7, 9)}))
}
