package fleetreader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/once"
)

func TestTheNextTickFollowsFromEqualDistancesOnly(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ticks := func(minutes ...int) (all []once.Record) {
		for _, m := range minutes {
			all = append(all, once.Record{Tick: noon.Add(time.Duration(m) * time.Minute), State: once.Ran})
		}
		return all
	}
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	regular := newJob("a", ticks(0, 1, 2, 3, 5, 6), at(8).Add(10*time.Second))
	assert.Equal(t, time.Minute, regular.Every)
	assert.Equal(t, at(9), regular.Next)
	assert.Equal(t, []time.Time{at(7), at(4)}, regular.Missed, "the one of now may still begin")
	open := ticks(0, 1, 2)
	open[1].State = once.Open
	assert.Equal(t, []time.Time{at(1)}, newJob("a", open, at(2)).Missed, "a tick that was given back")
	for _, irregular := range [][]once.Record{ticks(0), ticks(0, 7), ticks(0, 1, 5, 6, 8, 15, 17), ticks(0, 2, 5, 9)} {
		j := newJob("a", irregular, at(60))
		assert.Empty(t, j.Missed, "%v", irregular)
		assert.True(t, j.Next.IsZero())
	}
	assert.LessOrEqual(t, len(newJob("a", ticks(0, 1, 2), at(100_000_000)).Missed), 10_000)
}
