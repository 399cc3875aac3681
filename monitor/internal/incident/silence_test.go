package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/monitor/internal/incident"
)

func TestAProcessThatStopsWhileItLeadsIsNoLeader(t *testing.T) {
	t.Parallel()
	w := elects("leader", "follower")
	w.row(5, "a", key(9, 100), true)
	w.answer("a").Elections[0].Session = 5
	w.look(0)
	w.silence("a")
	w.look(time.Second).look(2 * time.Second)
	assert.Nil(t, w.has(incident.NoLeader), "it leads until its lease is over")
	assert.Contains(t, requireVerdict(t, w, incident.HolderSilent).Text, "a leads scheduler (1:100) and has been silent for 3.0 s; it may lead for up to 12 s.")

	w.Rows[0].StateAge = time.Second // its session renewed the lease
	w.look(0)
	assert.Contains(t, requireVerdict(t, w, incident.HolderSilent).Text, "for up to 14 s")

	w.look(14 * time.Second).look(2 * time.Second)
	assert.Contains(t, requireVerdict(t, w, incident.NoLeader).Evidence, "node-a (a): silent")
	assert.Contains(t, requireVerdict(t, w, incident.HolderSilent).Text, "a holds scheduler (1:100) and has not answered")

	w = elects("leader", "follower")
	w.look(0)
	w.answer("a").Elections[0].State = "follower"
	w.silence("a")
	w.look(time.Second).look(2 * time.Second)
	assert.NotNil(t, w.has(incident.NoLeader), "control: it did not lead")
}

func TestElectionsOfDifferentNamesOnOneKeyAreShownUnderBoth(t *testing.T) {
	t.Parallel()
	w := elects("follower", "leader")
	w.row(5, "b", key(9, 100), true)
	w.answer("a").Elections[0].Name = "mail"
	w.look(0)
	assert.Equal(t, "mail and scheduler", w.last.Elections[0].Name)
	assert.Equal(t, "mail and scheduler (1:100)", w.last.Keys[0].Text)
}

func TestAProcessThatWasSilentFromTheFirstLookHoldsWhatIsInItsName(t *testing.T) {
	t.Parallel()
	w := two()
	w.silence("a")
	w.Silent[0].Last, w.Silent[0].Spoke = nil, time.Time{} // nobody heard it say anything
	w.Rows[0].SilentBy = 901
	w.looks()
	assert.Contains(t, requireVerdict(t, w, incident.HolderSilent).Text, "a holds order/7")
	assert.Nil(t, w.has(incident.ProcessSilent))

	other := two()
	other.silence("a")
	other.Silent[0].Last = nil
	assert.Nil(t, other.looks().has(incident.HolderSilent), "control: the session is not its own")
}

func TestAProcessThatStopsJustAfterItTookALockHoldsIt(t *testing.T) {
	t.Parallel()
	w := two().look(0)
	w.silence("a")
	w.row(3, "a", key(2, 8), true).SilentBy = 901
	w.waits("b", 4, key(2, 8))
	w.looks()
	var said []string
	for _, v := range w.found {
		if v.Name == incident.HolderSilent {
			said = append(said, v.Key)
		}
	}
	assert.ElementsMatch(t, []string{"order/7", "stock/8"}, said)
	assert.Nil(t, w.has(incident.ProcessSilent))
}

func TestAProcessThatMissedOneQuestionIsNotSilent(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.process("a", 901)
	w.look(0)
	w.silence("a")
	assert.Nil(t, w.look(6*time.Minute).has(incident.ProcessSilent), "nobody asked meanwhile")
	w.Silent[0].Unanswered--
	assert.Nil(t, w.look(2*time.Second).has(incident.ProcessSilent), "a look without a question")

	w.look(time.Second)
	assert.Equal(t, "a has not answered for 6 min 3 s.", requireVerdict(t, w, incident.ProcessSilent).Text, "control: the second question")
}
