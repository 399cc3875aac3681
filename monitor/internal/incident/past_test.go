package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
)

func texts(events []incident.Event) (all []string) {
	for _, e := range events {
		all = append(all, string(e.Kind)+": "+e.Text)
	}
	return all
}

func TestWhatHappenedTellsOfHandOversLossesAndVerdicts(t *testing.T) {
	t.Parallel()
	w := two()
	for range 30 {
		w.waits("b", 0, key(1, 7))
	}
	w.look(0).look(4 * time.Minute)
	frame, ok := w.memory.Past().At(w.At.Add(time.Second))
	require.True(t, ok)
	assert.Equal(t, "a held order/7 for 4 min 0 s, 31 waited", frame.Keys[0].Say())

	w.Rows = nil // a releases, b has it
	w.answer("a").Locks, w.answer("b").Waits = nil, nil
	w.holds("b", 2, key(1, 7))
	w.look(time.Second)
	assert.Contains(t, texts(w.memory.Past().Events), "released: a released order/7 after 4 min 0 s, 31 waited")
	assert.Contains(t, texts(w.memory.Past().Events), "handed over: b got order/7 after 4 min 0 s, from a")

	w.look(6 * time.Minute)
	assert.Contains(t, texts(w.memory.Past().Events), "raised: 1 key is held for more than 5 min 0 s, and nobody waits.")
	w.Rows, w.Answers = nil, w.Answers[:1] // b dies
	w.look(time.Second)
	all := texts(w.memory.Past().Events)
	assert.Contains(t, all, "lost: b is gone; it held order/7 for 6 min 1 s, 0 waited")
	assert.Contains(t, all, "cleared: no longer: 1 key is held for more than 5 min 0 s, and nobody waits.")
}

func TestAProcessThatEndsWithManyLocksIsFewEvents(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.process("a", 901)
	for i := range 1000 {
		w.holds("a", 1, key(1, int32(i)))
	}
	w.look(0)
	w.Rows, w.Answers = nil, nil
	w.look(time.Second)
	all := texts(w.memory.Past().Events)
	assert.Len(t, all, 51)
	assert.Equal(t, "lost: and 950 more", all[50])
}

func TestANewLeaderIsAHandOver(t *testing.T) {
	t.Parallel()
	w := elects("leader", "follower").look(0)
	w.answer("a").Elections = []introspect.Election{election("follower", "node-a")}
	w.answer("b").Elections = []introspect.Election{election("leader", "node-b")}
	w.look(time.Second)
	assert.Contains(t, texts(w.memory.Past().Events), "handed over: node-b leads scheduler, after node-a")
}

func TestThePastHasAnEnd(t *testing.T) {
	t.Parallel()
	w := two()
	for range 2000 {
		w.look(5 * time.Second)
	}
	past := w.memory.Past()
	assert.LessOrEqual(t, w.At.Sub(past.Frames[0].At), incident.Kept)
	assert.LessOrEqual(t, len(past.Frames), 1500)
	for range 3000 { // a verdict that comes and goes
		w.Server.Standby = !w.Server.Standby
		w.look(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, len(past.Events), 5000)
	_, ok := past.At(start)
	assert.True(t, ok, "before the first there is the first")
}

func TestAFrameHasTheNamespacesWithTheMostWaiters(t *testing.T) {
	t.Parallel()
	w := two()
	w.holds("a", 1, key(2, 8))
	for range 3 {
		w.waits("b", 0, key(2, 8)).Age = time.Second
	}
	w.look(4 * time.Minute)
	frames := w.memory.Past().Frames
	assert.Equal(t, []incident.FrameSpace{
		{Name: "stock", Waiting: 3, Longest: 4*time.Minute + time.Second, Since: 4 * time.Minute},
		{Name: "order", Waiting: 1, Longest: 4 * time.Minute, Since: 4 * time.Minute},
	}, frames[len(frames)-1].Spaces)

	leads := elects("leader", "follower")
	leads.row(7, "a", key(9, 100), true)
	leads.look(0)
	assert.Empty(t, leads.memory.Past().Frames[0].Spaces, "a leader holds its key for as long as it runs")
}
