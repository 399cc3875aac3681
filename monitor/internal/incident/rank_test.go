package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

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
	cross := func(both bool) *world {
		w := two()
		w.holds("b", 3, key(2, 8))
		w.answer("b").Waits[0].Holds = []namespace.Tag{key(2, 8)}
		if both {
			w.waits("a", 4, key(2, 8), key(1, 7))
		} else {
			w.waits("a", 4, key(2, 8))
		}
		return w.look(0).look(6 * time.Minute)
	}
	w := cross(true)
	require.Len(t, w.found, 1)
	assert.Equal(t, incident.Deadlock, w.found[0].Name)

	assert.Len(t, cross(false).found, 2, "control: two keys are held for long")
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
