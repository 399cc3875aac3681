package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/incident"
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
func TestASemaphoreHasTheSessionsThatNoProcessAnswersFor(t *testing.T) {
	t.Parallel()
	pool, err := namespace.Must(1, "order").Text("pool@eu")
	require.NoError(t, err)
	companion := func(role string) namespace.Tag {
		k, err := pool.Companion(role)
		require.NoError(t, err)
		return k.Tag()
	}
	seen := func(semaphore string) *world {
		w := newWorld()
		w.process("a", 901)
		l := w.holds("a", 1, companion("slot1"))
		l.Semaphore, l.Slots, l.Key = semaphore, 2, semaphore+"#slot1"
		w.row(2, "silent", companion("slot0"), true).Namespace = "order"
		w.row(3, "silent", companion("turnstile"), true) // it waits for a slot, and the next one for the turnstile
		w.row(3, "silent", companion("slot1"), false)
		w.row(4, "silent", companion("turnstile"), false)
		w.row(5, "silent", pool.Tag(), true) // a lock, independent of the semaphore
		return w.look(0).look(30 * time.Second)
	}
	w := seen("order/pool@eu")
	require.Len(t, w.last.Keys, 2)
	k, lock := w.last.Keys[0], w.last.Keys[1]
	assert.Equal(t, "order/pool@eu", k.Text)
	assert.Equal(t, pool.Tag(), k.Tag)
	assert.Len(t, k.Holders, 2)
	assert.ElementsMatch(t, []uint32{3, 4}, []uint32{k.Waiters[0].PID, k.Waiters[1].PID})
	assert.Equal(t, incident.Mutex, lock.Kind)
	assert.Equal(t, companion("slot0").String(), k.ID, "a link to it stays, whoever holds it")
	assert.NotEqual(t, k.ID, lock.ID)

	wait := w.waits("a", 0, pool.Tag())
	wait.Key, wait.Semaphore, wait.Slots, wait.Session = "order/pool@eu", true, []namespace.Tag{companion("slot0"), companion("slot1")}, 6
	w.row(6, "a", companion("turnstile"), false)
	w.look(0)
	require.Len(t, w.last.Keys, 2, "a process that waits for the semaphore waits for no lock")
	assert.Len(t, w.last.Keys[0].Waiters, 3)
	assert.Equal(t, "a", w.last.Keys[0].Waiters[2].Who())
	assert.Equal(t, "idle", w.last.Keys[0].Waiters[2].State, "its session waits for the turnstile")
	wait.Session = 0
	assert.Len(t, w.look(0).last.Keys[0].Waiters, 3, "its wait moved to another session")

	assert.Len(t, seen("order/other").last.Keys, 4, "control: the slots of another semaphore")
	w = newWorld()
	w.Known = []namespace.Key{pool}
	w.row(2, "silent", companion("slot1"), true)
	assert.Equal(t, incident.Semaphore, w.look(0).last.Keys[0].Kind, "the viewer named it")
}

// The lock of a term shows what it is, whoever answers first.
func TestAnElectionIsOneInEveryOrderOfItsCandidates(t *testing.T) {
	t.Parallel()
	second := electionkeys.Of(key(9, 100)).Incarnation(7)
	for _, leader := range []string{"a", "b", "nobody answers"} {
		w := elects("follower", "follower")
		w.row(5, "a", key(9, 100), true)
		w.row(5, "a", second, true)
		switch leader {
		case "nobody answers":
			w.Answers = nil
		default:
			e := &w.answer(leader).Elections[0]
			e.State, e.Session, e.Tags = "leader", 5, append(e.Tags, second)
		}
		w.look(time.Hour).look(time.Hour)
		assert.Nil(t, w.has(incident.HeldLong), leader)
		require.Len(t, w.last.Keys, 2)
		for _, k := range w.last.Keys {
			assert.Equal(t, incident.Leading, k.Kind, leader)
		}
		assert.Equal(t, w.last.Key(key(9, 100)), w.last.Key(second).Main, leader)
		assert.Contains(t, []string{"scheduler (1:100 (second lock))", "9:100 (incarnation)"}, w.last.Key(second).Text)
	}
	w := newWorld()
	w.Silent = []incident.Silent{{Silent: introspect.Silent{Session: 901, ApplicationName: "a"}}}
	for _, tag := range []namespace.Tag{key(9, 100), second} {
		w.row(5, "a", tag, true).SilentBy = 901
	}
	w.row(6, "b", key(9, 100), false)
	assert.Contains(t, requireVerdict(t, w.looks(), incident.HolderSilent).Text, "a holds 9:100 and")
}

// parts is a process with Lockers, elections and shards, of the service billing and of another one.
func parts(other string) *world {
	w := newWorld()
	a := w.process("a", 901)
	w.holds("a", 1, key(1, 7))
	w.holds("a", 2, key(1, 8)).Service = other
	w.row(3, "a", key(9, 100), true)
	a.Waits = append(a.Waits, introspect.Wait{Key: "order/8", Tag: key(1, 8), Service: other})
	a.Elections = append(a.Elections, introspect.Election{Name: "jobs", Key: "9:100", Tags: []namespace.Tag{key(9, 100)}, Node: "n", State: "leader", Session: 3, Service: other})
	a.Groups = append(a.Groups, introspect.Group{Name: "tenant=5", Number: 5, Members: key(5, 0), Session: 4, Node: "n", Service: other})
	w.row(4, "a", key(5, 0), true)
	return w.look(0)
}

func TestEachRowOfAProcessNamesTheServiceOfItsPart(t *testing.T) {
	t.Parallel()
	seen := func(w *world) map[string]string {
		all := map[string]string{}
		for _, k := range w.last.Keys {
			require.Len(t, k.Holders, 1, k.Text)
			all[k.Text] = k.Holders[0].Who() + ", " + k.Holders[0].Place()
			for _, waiter := range k.Waiters {
				all["wait "+k.Text] = waiter.Who()
			}
		}
		all["candidate"] = w.last.Elections[0].Members[0].Who()
		return all
	}
	const other = "a (report), report, process 4711 on web-a"
	assert.Equal(t, map[string]string{
		"order/7": "a (billing), billing v1.2.3, process 4711 on web-a", "order/8": other, "wait order/8": "a (report)",
		"jobs (9:100)": other, "candidate": "a (report)", "members of tenant=5": other,
	}, seen(parts("report")))

	const one = "a, billing v1.2.3, process 4711 on web-a"
	assert.Equal(t, map[string]string{
		"order/7": one, "order/8": one, "wait order/8": "a", "jobs (9:100)": one, "candidate": "a", "members of tenant=5": one,
	}, seen(parts("")), "control: of one service, or of a version that does not name the services of parts")
}

func TestNamesOfServicesAreMadeLegible(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a (re?port)", parts("re\nport").last.Elections[0].Members[0].Who())
}

func TestAProcessThatBecomesSilentKeepsTheServicesOfItsParts(t *testing.T) {
	t.Parallel()
	w := parts("report")
	w.silence("a")
	w.process("b", 902)
	w.waits("b", 5, key(1, 8))
	w.looks()
	for _, v := range w.found {
		if v.Key == "order/8" && v.Name == incident.HolderSilent {
			assert.Contains(t, v.Text, "a (report) holds order/8")
			return
		}
	}
	t.Error(w.found)
}

// shardOwner is a process that owns order/1 to order/3, of which its answer has room for the first, under the name of its Locker.
func shardOwner() *world {
	w := newWorld()
	w.process("a", 901)
	l := w.holds("a", 1, key(1, 1))
	l.Group = "order=1"
	w.row(1, "a", key(1, 2), true)
	w.row(1, "a", key(1, 3), true)
	w.row(1, "a", members, true).Shared = true
	w.answer("a").Groups = []introspect.Group{{Name: "order=1", Number: 1, Members: members, Node: "web-3", Session: 1, Owned: 3}}
	return w
}

var members = namespace.Tag{ClassID: 1<<31 | 5, ObjSubID: namespace.SingleForm}

func TestHealthyShardsAreNoVerdict(t *testing.T) {
	t.Parallel()
	w := shardOwner()
	w.look(time.Hour).look(time.Hour)
	assert.Empty(t, w.found)
	for _, k := range w.last.Keys {
		assert.Equal(t, incident.Shard, k.Kind)
		assert.Equal(t, "a", k.Holders[0].Process.Name)
		assert.Equal(t, "web-3", k.Holders[0].Node)
	}

	w = shardOwner()
	w.answer("a").Groups = nil
	w.look(time.Hour).look(time.Hour)
	assert.NotNil(t, w.has(incident.Pooler), "control: nobody says whose they are")
	assert.NotNil(t, w.has(incident.HeldLong), "control: they are no shards")
}

// A leader holds the election's lock for as long as it leads, and its followers wait for it.
func TestAHealthyElectionIsNoVerdict(t *testing.T) {
	t.Parallel()
	healthy := func() *world {
		w := elects("leader", "follower")
		w.row(5, "a", key(9, 100), true)
		w.row(6, "b", key(9, 100), false)
		w.answer("a").Elections[0].Session = 5
		return w
	}
	w := healthy().look(time.Hour).look(time.Hour)
	assert.Empty(t, w.found)

	w = healthy()
	w.answer("a").Elections, w.answer("b").Elections = nil, nil
	w.look(time.Hour).look(time.Hour)
	assert.NotNil(t, w.has(incident.HeldLong), "control: it is no election")
}

func TestShardsOfASilentNodeAreOneCriticalVerdict(t *testing.T) {
	t.Parallel()
	w := shardOwner().look(0)
	w.silence("a")
	w.looks()
	v := requireVerdict(t, w, incident.HolderSilent)
	assert.Equal(t, incident.Critical, v.Severity)
	assert.Contains(t, v.Text, "holds 4 keys")
	assert.Contains(t, strings.Join(v.Evidence, "\n"), "it holds order/1")
	assert.Len(t, w.found, 1)
}

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
