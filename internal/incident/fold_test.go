package incident_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

func TestADeadlockHasItsConsequences(t *testing.T) {
	t.Parallel()
	w := crossed(true).looks().look(6 * time.Minute)
	v := w.has(incident.Deadlock)
	require.NotNil(t, v)
	assert.Equal(t, []string{"a", "b"}, v.Who)
	assert.Equal(t, 2, v.Waiters, "those of both keys")
	require.NotEmpty(t, v.Consequences)
	for _, c := range v.Consequences {
		assert.Equal(t, incident.HeldLong, c.Name)
	}
	assert.Nil(t, w.has(incident.HeldLong))
	assert.NotNil(t, two().look(6*time.Minute).has(incident.HeldLong), "control: without a deadlock it is a verdict of its own")
}

// Each cause is the one verdict of its key. If the key has another holder, it may be that one that does not let go.
func TestWhatFollowsFromAHolderIsUnderItsVerdict(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]func(w *world){
		incident.HolderSilent: func(w *world) { w.silence("a") },
		incident.HolderIdle:   func(w *world) { w.Rows[0].State = "idle in transaction" },
		incident.Foreign:      func(w *world) { w.Rows[0].Name, w.answer("a").Locks, w.answer("a").AllLocks = "psql", nil, 0 },
		incident.Prepared: func(w *world) {
			w.Rows[0].PID, w.Rows[0].Name, w.answer("a").Locks, w.answer("a").AllLocks = 0, "", nil, 0
		},
		incident.Pooler: func(w *world) { w.answer("a").Locks, w.answer("a").AllLocks = nil, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := func(another bool) *world {
				w := two()
				if another {
					w.process("c", 903)
					w.holds("c", 3, key(1, 7))
				}
				w.look(0)
				cause(w)
				return w.look(6 * time.Minute).look(2 * time.Second)
			}
			w := seen(false)
			v := requireVerdict(t, w, name)
			require.Len(t, v.Consequences, 1)
			assert.Equal(t, incident.HeldLong, v.Consequences[0].Name)
			assert.Nil(t, w.has(incident.HeldLong))

			assert.NotNil(t, seen(true).has(incident.HeldLong), "control: it has another holder")
		})
	}
}

func TestAQueueGrowsBehindALongHold(t *testing.T) {
	t.Parallel()
	grows := func(held time.Duration) *world {
		w := two().look(0).look(held)
		for range 9 {
			w.waits("b", 0, key(1, 7))
		}
		return w.look(3 * time.Second).look(2 * time.Second)
	}
	v := requireVerdict(t, grows(6*time.Minute), incident.HeldLong)
	require.Len(t, v.Consequences, 1)
	assert.Equal(t, incident.QueueGrows, v.Consequences[0].Name)
	assert.NotNil(t, grows(time.Second).has(incident.QueueGrows), "control: the hold is short")
}

// That its holder is a stranger explains nothing that the cause of its key does not say.
func TestAStrangerIsUnderTheCauseOfItsKey(t *testing.T) {
	t.Parallel()
	stranger := func(w *world) { w.Rows[0].Name, w.answer("a").Locks, w.answer("a").AllLocks = "psql", nil, 0 }
	for name, c := range map[string]struct {
		world func() *world
		cause func(w *world)
	}{
		incident.HolderIdle: {two, func(w *world) { w.Rows[0].State = "idle in transaction" }},
		incident.Deadlock: {two, func(w *world) {
			w.holds("b", 3, key(2, 8))
			w.answer("b").Waits[0].Holds = []namespace.Tag{key(2, 8)}
			w.row(w.Rows[0].PID, "psql", key(2, 8), false)
		}},
		incident.NoLeader: {two, func(w *world) {
			e := election("follower", "node-b")
			e.Key, e.Tags = text(key(1, 7)), []namespace.Tag{key(1, 7)}
			w.answer("b").Elections = []introspect.Election{e}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := func(cause func(w *world)) *world {
				w := c.world()
				stranger(w)
				cause(w)
				return w.look(0).look(30 * time.Second).look(2 * time.Second)
			}
			w := seen(c.cause)
			v := requireVerdict(t, w, name)
			assert.Nil(t, w.has(incident.Foreign))
			assert.True(t, slices.ContainsFunc(v.Consequences, func(c incident.Verdict) bool { return c.Name == incident.Foreign }), "%+v", v)

			assert.NotNil(t, seen(func(*world) {}).has(incident.Foreign), "control: without the cause it is a verdict of its own")
		})
	}
}

func TestACandidateOfAClashIsUnderIt(t *testing.T) {
	t.Parallel()
	seen := func(name string) *world {
		w := elects("follower", "leader")
		w.answer("a").Elections[0].Error = "the key belongs to the election scheduler"
		w.answer("a").Elections[0].Name = name
		return w.looks()
	}
	v := requireVerdict(t, seen("reports"), incident.ElectionClash)
	require.Len(t, v.Consequences, 1)
	assert.Equal(t, incident.CannotConnect, v.Consequences[0].Name)
	assert.NotNil(t, seen("scheduler").has(incident.CannotConnect), "control: one election")
}

func TestACandidateThatCannotConnectIsUnderItsElectionWithoutALeader(t *testing.T) {
	t.Parallel()
	seen := func(leader string) *world {
		w := elects("follower", leader)
		w.answer("a").Elections[0].Error = "connection refused"
		return w.looks()
	}
	v := requireVerdict(t, seen("follower"), incident.NoLeader)
	require.Len(t, v.Consequences, 1)
	assert.Equal(t, incident.CannotConnect, v.Consequences[0].Name)
	assert.NotNil(t, seen("leader").has(incident.CannotConnect), "control: somebody leads")
}

func TestAFoldedVerdictIsNotOver(t *testing.T) {
	t.Parallel()
	ended := func(w *world) (texts []string) {
		for _, e := range w.memory.Past().Events {
			if e.Kind == incident.Cleared {
				texts = append(texts, e.Text)
			}
		}
		return texts
	}
	w := two().look(0).look(6 * time.Minute)
	require.NotNil(t, w.has(incident.HeldLong))
	w.silence("a")
	w.look(time.Second).look(time.Second)
	require.NotNil(t, w.has(incident.HolderSilent))
	assert.Empty(t, ended(w))
	w.Rows, w.Silent = nil, nil
	assert.Len(t, ended(w.look(time.Second)), 2, "control: now both are")
}

func TestManyKeysOfOneKindAreFewVerdicts(t *testing.T) {
	t.Parallel()
	w := two()
	for i := range 1000 {
		w.holds("a", 1, key(1, int32(100+i)))
		w.waits("b", 0, key(1, int32(100+i)))
		w.holds("a", 1, key(2, int32(100+i)))
	}
	w.look(0)
	w.silence("a")
	w.look(0).look(6 * time.Minute)
	assert.Less(t, len(w.found), 50)
	silent := 0
	for _, v := range w.found {
		if v.Name == incident.HolderSilent {
			silent++
			if silent == 20 {
				assert.Contains(t, v.Evidence, "982 more verdicts of this kind")
			}
		}
	}
	assert.Equal(t, 20, silent)
}

func TestADeadlockIsOneCardNotOneForEachOfItsKeys(t *testing.T) {
	t.Parallel()
	w := crossed(true).look(0).look(6 * time.Minute)
	require.Len(t, w.found, 1)
	assert.Equal(t, incident.Deadlock, w.found[0].Name)

	assert.Len(t, crossed(false).look(0).look(6*time.Minute).found, 2, "control: two keys are held for long")
}

func TestManyWaitersComeBeforeOneThatWaitsALittleLonger(t *testing.T) {
	t.Parallel()
	w := two()
	w.answer("b").Waits[0].Age = 10 * time.Second
	w.holds("a", 1, key(2, 8))
	for range 2000 {
		w.waits("b", 0, key(2, 8)).Age = time.Second
	}
	w.look(0)
	first := incident.ByTrouble(w.last, nil)[0]
	assert.Equal(t, "stock/8", first.Text)
}

func TestTheVerdictWithTheMostWaitersComesFirst(t *testing.T) {
	t.Parallel()
	keys := func(waiters int) (all []string) {
		w := two()
		w.holds("a", 1, key(2, 8))
		for range waiters {
			w.waits("b", 0, key(2, 8))
		}
		w.look(0).look(6 * time.Minute)
		for _, v := range w.found {
			all = append(all, v.Key)
		}
		return all
	}
	assert.Equal(t, []string{"stock/8", "order/7"}, keys(200))
	assert.Equal(t, []string{"order/7", "stock/8"}, keys(1), "control: one waiter each, in the order of the keys")
}

func TestANoteLiftsNoKeyAboveOneThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.process("a", 901)
	w.process("b", 902)
	w.holds("a", 1, key(1, 7))
	w.looks().look(6 * time.Minute)
	w.holds("a", 1, key(2, 8))
	w.waits("b", 2, key(2, 8))
	w.look(time.Second)
	require.Len(t, w.found, 1)
	v := w.found[0]
	assert.Equal(t, incident.Note, v.Severity)
	assert.True(t, v.Of(key(1, 7).String()), "it links its key")
	assert.Equal(t, "stock/8", incident.ByTrouble(w.last, w.found)[0].Text)
	w.found[0].Severity = incident.Warning
	assert.Equal(t, "order/7", incident.ByTrouble(w.last, w.found)[0].Text, "control: a warning does")
}

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
