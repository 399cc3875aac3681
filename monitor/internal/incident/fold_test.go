package incident_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

func TestADeadlockHasItsConsequences(t *testing.T) {
	t.Parallel()
	w := two()
	w.holds("b", 3, key(2, 8))
	w.answer("b").Waits[0].Holds = []namespace.Tag{key(2, 8)}
	w.waits("a", 4, key(2, 8), key(1, 7))
	w.looks().look(6 * time.Minute)
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
