package incident_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// two is a fleet in which a holds order/7 and b waits for it.
func two() *world {
	w := newWorld()
	w.process("a", 901)
	w.process("b", 902)
	w.holds("a", 1, key(1, 7))
	w.waits("b", 2, key(1, 7))
	return w
}

func election(state, node string) introspect.Election {
	return introspect.Election{Name: "scheduler", Key: "1:100", Tags: []namespace.Tag{key(9, 100)}, Node: node, State: state, Lease: 15 * time.Second}
}

// elects is a fleet of two candidates.
func elects(a, b string) *world {
	w := newWorld()
	w.process("a", 901)
	w.process("b", 902)
	w.answer("a").Elections = []introspect.Election{election(a, "node-a")}
	w.answer("b").Elections = []introspect.Election{election(b, "node-b")}
	return w
}

// crossed is two, in which b holds stock/8 while it waits, and a waits for that, in the goroutine that holds order/7 or in another one.
func crossed(same bool) *world {
	w := two()
	w.holds("b", 3, key(2, 8))
	w.answer("b").Waits[0].Holds = []namespace.Tag{key(2, 8)}
	if same {
		w.waits("a", 4, key(2, 8), key(1, 7))
	} else {
		w.waits("a", 4, key(2, 8))
	}
	return w
}

// Each verdict is raised by the first, and not by the second, which differs from it in what the verdict is about.
func TestEachVerdictIsRaisedByWhatItIsAboutAndNotBySomethingLikeIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raise, control func() *world
		evidence       string
	}{
		incident.Deadlock: {
			raise:    func() *world { return crossed(true).looks() },
			control:  func() *world { return crossed(false).looks() },
			evidence: "a holds order/7 and has waited 2.0 s for stock/8",
		},
		incident.HeldLong: {
			raise:    func() *world { return two().look(6 * time.Minute) },
			control:  func() *world { return two().look(4 * time.Minute) },
			evidence: "1 waits, the first for 6 min 0 s",
		},
		incident.HolderSilent: {
			raise: func() *world {
				w := two().look(0)
				w.silence("a")
				return w.look(time.Second).look(time.Second)
			},
			control: func() *world {
				w := two().look(0)
				w.silence("a")
				w.look(time.Second)
				w.Answers = append(w.Answers, *w.Silent[0].Last)
				w.Silent = nil
				return w.look(time.Second)
			},
			evidence: "process 4711 on web-a",
		},
		incident.HolderIdle: {
			raise: func() *world {
				w := two()
				w.Rows[0].State = "idle in transaction"
				return w.look(4 * time.Second)
			},
			control: func() *world {
				w := two()
				w.Rows[0].State = "idle"
				return w.look(4 * time.Second)
			},
			evidence: "idle in transaction",
		},
		incident.Foreign: {
			raise: func() *world {
				w := newWorld()
				w.process("b", 902)
				w.row(77, "psql", key(1, 7), true)
				w.waits("b", 2, key(1, 7))
				return w.looks()
			},
			control:  func() *world { return two().looks() },
			evidence: "use the namespace order",
		},
		incident.Prepared: {
			raise: func() *world {
				w := newWorld()
				w.process("b", 902)
				w.row(0, "", key(1, 7), true)
				w.waits("b", 2, key(1, 7))
				return w.looks()
			},
			control:  func() *world { return two().look(0) },
			evidence: "1 wait",
		},
		incident.StarvedWriter: {
			raise: func() *world {
				w := two()
				w.Rows[0].Shared, w.answer("a").Locks[0].Shared = true, true
				w.answer("b").Waits[0].Age = time.Minute
				return w.look(0)
			},
			control: func() *world { // the reader was there before
				w := two()
				w.Rows[0].Shared, w.answer("a").Locks[0].Shared = true, true
				w.answer("a").Locks[0].Age = 2 * time.Minute
				w.answer("b").Waits[0].Age = time.Minute
				return w.look(0)
			},
			evidence: "took it later: a",
		},
		incident.QueueGrows: {
			raise: func() *world {
				w := two().look(0)
				for range 9 {
					w.waits("b", 0, key(1, 7))
				}
				return w.look(3 * time.Second).look(2 * time.Second)
			},
			control: func() *world {
				w := two()
				for range 9 {
					w.waits("b", 0, key(1, 7))
				}
				return w.look(0).look(3 * time.Second).look(2 * time.Second)
			},
			evidence: "a holds it for 5.0 s",
		},
		incident.LockTable: {
			raise: func() *world {
				w := newWorld()
				w.Server.Locks = 4800
				w.process("a", 901)
				w.holds("a", 1, key(1, 7))
				w.Server.Takers = []incident.Taker{{PID: 1, Name: "application", Database: "shop", Locks: 4321}, {PID: 9, Name: "report", Database: "other", Locks: 99}}
				return w.look(0)
			},
			control: func() *world {
				w := newWorld()
				w.Server.Locks = 4000
				return w.look(0)
			},
			evidence: "4,800 of 6,400 entries are taken, by advisory and other locks of all databases\na has 4,321 of them: session 1 of database shop\nreport has 99 of them: session 9 of database other",
		},
		incident.Connections: {
			raise: func() *world {
				w := newWorld()
				w.Server.Connections = 90
				return w.look(0)
			},
			control: func() *world {
				w := newWorld()
				w.Server.Connections = 80
				return w.look(0)
			},
			evidence: "max_connections",
		},
		incident.Pooler: {
			raise: func() *world { // a says that it has the key on session 1, and it is on session 5
				w := two()
				w.Rows[0].PID = 5
				return w.looks()
			},
			control:  func() *world { return two().looks() },
			evidence: "session 5 (a), idle",
		},
		incident.CommitsWait: {
			raise: func() *world {
				w := newWorld()
				w.Server.Commits = incident.Commits{Waiting: 2, Longest: 3 * time.Second, Who: []string{"", "shop"}, Standbys: "FIRST 1 (standby)"}
				return w.looks()
			},
			control: func() *world {
				w := newWorld()
				w.Server.Commits = incident.Commits{Waiting: 2, Longest: 2 * time.Second, Who: []string{"shop"}, Standbys: "FIRST 1 (standby)"}
				return w.looks()
			},
			evidence: "synchronous_standby_names is FIRST 1 (standby)\nsessions of a session without a name and shop",
		},
		incident.Standby: {
			raise: func() *world {
				w := newWorld()
				w.Server.Standby = true
				return w.look(0)
			},
			control:  func() *world { return newWorld().look(0) },
			evidence: "pg_is_in_recovery()",
		},
		incident.NameClash: {
			raise: func() *world {
				w := two()
				w.waits("b", 0, key(1, 9)).Key = "invoice/9"
				return w.look(0)
			},
			control: func() *world {
				w := two()
				w.waits("b", 0, key(3, 9)).Key = "invoice/9"
				return w.look(0)
			},
			evidence: "b calls it invoice",
		},
		incident.ElectionClash: {
			raise: func() *world {
				w := elects("follower", "leader")
				w.answer("a").Elections[0].Name = "mail"
				return w.look(0)
			},
			control: func() *world { // another election on another key
				w := elects("leader", "leader")
				e := &w.answer("a").Elections[0]
				e.Name, e.Tags, e.Key = "mail", []namespace.Tag{key(9, 101)}, "1:101"
				return w.look(0)
			},
			evidence: "node-a (a) calls it mail\nnode-b (b) calls it scheduler",
		},
		incident.NoLeader: {
			raise:    func() *world { return elects("follower", "acquiring").looks() },
			control:  func() *world { return elects("follower", "leader").looks() },
			evidence: "nobody holds its lock",
		},
		incident.TwoLeaders: {
			raise:    func() *world { return elects("leader", "leader").looks() },
			control:  func() *world { return elects("follower", "leader").looks() },
			evidence: "node-b (b) leads for 2.0 s",
		},
		incident.CannotConnect: {
			raise: func() *world {
				w := elects("leader", "follower")
				w.answer("b").Elections[0].Error = "connection refused"
				return w.looks()
			},
			control:  func() *world { return elects("leader", "follower").looks() },
			evidence: "connection refused",
		},
		incident.Clocks: {
			raise: func() *world {
				w := two()
				w.answer("b").Process.Clock = w.At.Add(-3 * time.Second)
				return w.look(0)
			},
			control: func() *world {
				w := two()
				w.answer("b").Process.Clock = w.At.Add(-3 * time.Second)
				w.answer("b").Took = 4 * time.Second // it may have been read 3 s ago
				return w.look(0)
			},
			evidence: "web-b is 3.0 s behind",
		},
		incident.ProcessSilent: {
			raise: func() *world {
				w := two().look(0)
				w.silence("b")
				return w.look(time.Second).look(time.Second)
			},
			control: func() *world {
				w := two().look(0)
				w.silence("b")
				return w.look(time.Second)
			},
			evidence: "session 902",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := requireVerdict(t, c.raise(), name)
			assert.NotEmpty(t, v.Text)
			assert.NotEmpty(t, v.Advice)
			assert.Contains(t, strings.Join(v.Evidence, "\n"), c.evidence)
			assert.Equal(t, "docs/how-to/incidents.md#"+name, v.Doc)
			if name != incident.Standby && name != incident.Connections { // about the server
				assert.NotEmpty(t, v.Who)
			}
			if !slices.Contains([]string{incident.HolderSilent, incident.Pooler, incident.Foreign}, name) { // about what does not answer
				assert.NotRegexp(t, `(?i)terminate|\bend (it|its|one|the|who|session)\b`, v.Advice)
			}
			assert.Nil(t, c.control().has(name), "control")
		})
	}
}

func TestEveryVerdictIsTestedAndNamed(t *testing.T) {
	t.Parallel()
	require.Len(t, incident.Names(), 23)
	assert.Empty(t, two().looks().found, "control: a holder and a waiter are no trouble")
}

func TestAQueueThatIsServedDoesNotGrow(t *testing.T) {
	t.Parallel()
	w := two()
	short := w.answer("b").Waits
	for range 9 {
		w.waits("b", 0, key(1, 7))
	}
	long := w.answer("b").Waits
	queue := func(waits []introspect.Wait) {
		w.answer("b").Waits, w.answer("b").AllWaits = slices.Clone(waits), len(waits)
	}
	for range 4 { // it rises and falls
		queue(short)
		w.look(2 * time.Second)
		queue(long)
		for i := range w.answer("b").Waits {
			w.answer("b").Waits[i].Age = 10 * time.Second
		}
		w.look(time.Second)
		require.Nil(t, w.has(incident.QueueGrows))
	}
	for range 4 { // it is long in each look, and none of its requests waits for long
		queue(long)
		for i := range w.answer("b").Waits {
			w.answer("b").Waits[i].Age = -900 * time.Millisecond
		}
		w.look(time.Second)
		require.Nil(t, w.has(incident.QueueGrows))
	}
	w = two().look(0)
	queue(long)
	assert.NotNil(t, w.look(3*time.Second).look(2*time.Second).has(incident.QueueGrows), "control")
}

func TestAHoldIsLongByWhatIsUsualForItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.process("a", 901)
	w.process("b", 902)
	for range 6 { // each for a tenth of a second
		w.holds("a", 1, key(1, 7))
		w.look(100 * time.Millisecond)
		w.Rows, w.answer("a").Locks = nil, nil
		w.look(time.Second)
	}
	w.holds("a", 1, key(1, 7))
	w.waits("b", 2, key(1, 7))
	w.look(1500 * time.Millisecond)
	assert.Nil(t, w.has(incident.HeldLong), "not for long enough to look at")
	w.look(time.Second)
	v := requireVerdict(t, w, incident.HeldLong)
	assert.Equal(t, incident.Warning, v.Severity)
	assert.Contains(t, strings.Join(v.Evidence, "\n"), "most holds of it were shorter than 0.1 s")
}

func TestNoHoldIsShorterThanNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.process("a", 901)
	w.process("b", 902)
	for range 6 {
		w.holds("a", 1, key(1, 7))
		w.look(0)
		w.Rows, w.answer("a").Locks = nil, nil
		w.look(time.Second)
	}
	w.holds("a", 1, key(1, 7))
	w.waits("b", 2, key(1, 7))
	w.look(3 * time.Second)
	assert.Contains(t, strings.Join(requireVerdict(t, w, incident.HeldLong).Evidence, "\n"), "most holds of it were shorter than 0.1 s")
}

func TestASessionInTheNameOfAProcessThatKnowsNothingOfItsLockIsALeak(t *testing.T) {
	t.Parallel()
	w := two()
	w.row(55, "a", key(1, 9), true)
	w.looks()
	v := requireVerdict(t, w, incident.Pooler)
	assert.Equal(t, "order/9", v.Key)

	w = two()
	w.row(55, "a", key(1, 9), true).State = "active"
	assert.Nil(t, w.looks().has(incident.Pooler), "control: a transaction of the same program (LockTx)")
}

// A key that is taken and released all the time is seen by each look as it was after the answer.
func TestAHotKeyIsNoLeakAndNoPooler(t *testing.T) {
	t.Parallel()
	w := two()
	w.row(55, "a", key(1, 9), true)          // held when the server is asked, and not when the process was
	w.row(56, "other name", key(1, 8), true) // the same, of another Locker of the process
	w.waits("b", 0, key(1, 8))
	a := w.answer("a")
	a.Locks = append(a.Locks, introspect.Lock{Key: "order/10", Tag: key(1, 10), Session: 57}) // the other way round
	a.AllLocks++
	for range 8 {
		for i := range w.Rows {
			if w.Rows[i].PID >= 55 {
				w.Rows[i].StateAge = -time.Second // the sessions have just done something
			}
		}
		a.Locks[1].Age = -900 * time.Millisecond
		w.look(time.Second)
		require.Empty(t, w.found)
	}
	w.looks()
	assert.NotNil(t, w.has(incident.Pooler), "control: a session that does nothing")
	assert.NotNil(t, w.has(incident.Foreign), "control: the same")
}

func TestOppositeOrdersThatDoNotMeetAreNoDeadlock(t *testing.T) {
	t.Parallel()
	w := crossed(true)
	for range 5 {
		w.answer("a").Waits[0].Age = -900 * time.Millisecond // each look sees another wait
		w.look(time.Second)
		require.Nil(t, w.has(incident.Deadlock))
	}
	assert.NotNil(t, w.looks().has(incident.Deadlock), "control: the wait lasts")
}

// The server counts the time of a commit from the start of its statement.
func TestTheCommitOfALongStatementIsNoWait(t *testing.T) {
	t.Parallel()
	w := newWorld()
	wait := func(waits bool) {
		w.Server.Commits = incident.Commits{}
		if waits {
			w.Server.Commits = incident.Commits{Waiting: 1, Longest: time.Hour, Standbys: "standby"}
		}
	}
	for range 3 {
		wait(true)
		require.Nil(t, w.look(time.Second).has(incident.CommitsWait))
		wait(false)
		require.Nil(t, w.look(time.Second).has(incident.CommitsWait))
	}
	wait(true)
	require.NotNil(t, w.looks().has(incident.CommitsWait), "the control: it lasts")
}
