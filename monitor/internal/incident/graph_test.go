package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

func TestACycleOfThreeProcessesIsNamedWithItsKeysAndLabels(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i, name := range []string{"a", "b", "c"} {
		w.process(name, 901+uint32(i))
		w.holds(name, 1+uint32(i), key(1, int32(i)))
	}
	for i, name := range []string{"a", "b", "c"} {
		w.waits(name, 11+uint32(i), key(1, int32(i+1)%3), key(1, int32(i))).Label = "job of " + name
	}
	w.process("d", 904)
	w.waits("d", 20, key(1, 0)) // behind the cycle, not of it
	w.look(0)
	require.Len(t, w.last.Cycles, 1)
	c := w.last.Cycles[0]
	require.Len(t, c.Steps, 3)
	for i, s := range c.Steps {
		assert.Equal(t, "job of "+s.Who, s.Label)
		assert.NotEqual(t, "d", s.Who)
		require.NotNil(t, s.Holds)
		assert.Equal(t, c.Steps[(i+2)%3].Wants, s.Holds, "each holds what the one before wants")
	}
	assert.Len(t, c.Keys(), 3)
}

func TestAChainIsNoCycle(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i, name := range []string{"a", "b", "c"} {
		w.process(name, 901+uint32(i))
		w.holds(name, 1+uint32(i), key(1, int32(i)))
		if i > 0 {
			w.waits(name, 11+uint32(i), key(1, int32(i-1)), key(1, int32(i)))
		}
	}
	assert.Empty(t, w.look(0).last.Cycles)
}

func TestAWaiterBehindAWriterIsPartOfACycleThroughTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i, name := range []string{"reader", "writer", "late"} {
		w.process(name, 901+uint32(i))
	}
	// reader shares order/1, for which writer waits; late waits behind writer, to share it, and holds what reader wants.
	w.holds("reader", 1, key(1, 1)).Shared = true
	w.Rows[0].Shared = true
	w.holds("late", 3, key(1, 2))
	w.waits("writer", 12, key(1, 1))
	w.waits("late", 13, key(1, 1), key(1, 2)).Shared = true
	w.waits("reader", 11, key(1, 2), key(1, 1))
	w.look(0)
	require.Len(t, w.last.Cycles, 1)
	assert.Len(t, w.last.Cycles[0].Steps, 3)

	w.answer("writer").Waits[0].Shared = true
	for i := range w.Rows {
		w.Rows[i].Shared = w.Rows[i].Tag == key(1, 1)
	}
	assert.Empty(t, w.look(0).last.Cycles, "control: readers do not wait for readers")
}

func TestASemaphoreIsACycleOnlyIfNoSlotCanBecomeFree(t *testing.T) {
	t.Parallel()
	slot := func(i int32) namespace.Tag { return key(50, i) }
	build := func(second bool) *world {
		w := newWorld()
		w.process("a", 901)
		w.process("b", 902)
		for i, name := range []string{"a", "b"} {
			l := w.holds(name, 1+uint32(i), slot(int32(i)))
			l.Semaphore, l.Slots, l.Key = "order/pool", 2, "order/pool"
		}
		w.holds("b", 5, key(1, 1))
		wait := w.waits("b", 6, key(50, 99), key(1, 1))
		wait.Key, wait.Semaphore, wait.Slots = "order/pool", true, []namespace.Tag{slot(0), slot(1)}
		w.waits("a", 7, key(1, 1), slot(0))
		if second { // and the holder of the other slot waits, too
			w.waits("b", 0, key(1, 1), slot(1))
		}
		return w.look(0)
	}
	w := build(true)
	assert.Len(t, w.last.Cycles, 1)
	assert.Empty(t, build(false).last.Cycles, "control: b's other goroutine gives slot 1 back")
	for _, k := range w.last.Keys {
		if k.Text == "order/pool" {
			assert.Len(t, k.Holders, 2)
			assert.Equal(t, 2, k.Slots)
		}
	}
}

func TestSessionsWithoutProcessesAreAlsoSeenInACycle(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.row(1, "psql", key(1, 1), true)
	w.row(2, "psql", key(1, 2), true)
	w.row(1, "psql", key(1, 2), false)
	w.row(2, "psql", key(1, 1), false)
	assert.Len(t, w.look(0).last.Cycles, 1)
}

func TestTwentyThousandWaitersAreLookedThroughInTime(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 100 {
		name := "p" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		w.process(name, 901+uint32(i))
		a := w.answer(name)
		for j := range 200 {
			a.Waits = append(a.Waits, introspect.Wait{Key: "order/1", Tag: key(1, 1), Ahead: j, Holds: []namespace.Tag{key(3, int32(i*200+j))}})
		}
	}
	w.row(1, "psql", key(1, 1), true)
	began := time.Now()
	w.look(0)
	assert.Less(t, time.Since(began), 20*time.Second, "a graph of pairs has 200 million edges")
	assert.Len(t, w.last.Keys[0].Waiters, 20_000)
	t.Log(time.Since(began))
}

// A program with its answers off, beside one that answers.
func TestASlotThatNoProcessAnswersForHasTheNameOfItsSemaphore(t *testing.T) {
	t.Parallel()
	pool, err := namespace.Must(1, "order").Text("pool")
	require.NoError(t, err)
	slot := func(role string) namespace.Tag {
		k, err := pool.Companion(role)
		require.NoError(t, err)
		return k.Tag()
	}
	seen := func(semaphore string) *world {
		w := newWorld()
		w.process("a", 901)
		l := w.holds("a", 1, slot("slot0"))
		l.Semaphore, l.Slots, l.Key = semaphore, 2, semaphore+"#slot0"
		r := w.row(2, "silent", slot("slot1"), true)
		r.Namespace = "order"
		return w.look(0).look(30 * time.Second)
	}
	w := seen("order/pool")
	require.Len(t, w.last.Keys, 1)
	assert.Equal(t, "order/pool", w.last.Keys[0].Text)
	assert.Len(t, w.last.Keys[0].Holders, 2)
	assert.Len(t, seen("order/other").last.Keys, 2, "control: the slots of another semaphore")
}
