package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

var nodeTag = namespace.SingleRaw(-7).Tag()

// mailed is a world with a mailbox that a node serves, and change.
func mailed(change ...func(w *world, b *incident.Mailbox)) *world {
	w := newWorld()
	w.process("web-1", 900)
	w.holds("web-1", 7, nodeTag)
	b := incident.Mailbox{Name: "chat", Nodes: []incident.MailboxNode{{Name: "web-1/X", Tag: nodeTag}}}
	b.Turns = []incident.Turn{{Text: "order/1", Tag: key(1, 1), Node: "web-1/X", Age: 10 * time.Second, Attempts: 1}}
	for _, f := range change {
		f(w, &b)
	}
	w.Mailboxes = []incident.Mailbox{b}
	return w
}

// unserved has no node: its lock is free.
func unserved(w *world, _ *incident.Mailbox) { w.Rows, w.Answers = nil, nil }

// lasts looks for longer than any condition must last.
func (w *world) lasts() *world {
	for range 12 {
		w.look(time.Second)
	}
	return w
}

func turn(f func(*incident.Turn)) func(*world, *incident.Mailbox) {
	return func(_ *world, b *incident.Mailbox) { f(&b.Turns[0]) }
}

func ready(n int, oldest time.Duration) func(*world, *incident.Mailbox) {
	return func(_ *world, b *incident.Mailbox) { b.Ready, b.Oldest = n, oldest }
}

func TestVerdictsAboutMailboxes(t *testing.T) {
	t.Parallel()
	runsFor := func(d time.Duration) func(*world, *incident.Mailbox) {
		return turn(func(t *incident.Turn) { t.Age = d })
	}
	behind := turn(func(t *incident.Turn) { t.Behind = true })
	interrupted := turn(func(t *incident.Turn) { t.Interrupted = true })
	fails := func(n int) func(*world, *incident.Mailbox) {
		return turn(func(t *incident.Turn) { t.Attempts, t.Err = n, "no model" })
	}
	dead := func(_ *world, b *incident.Mailbox) {
		b.Dead = []incident.Turn{{Text: "order/2", Tag: key(1, 2), Attempts: 5, Age: time.Minute, Err: "no model"}}
	}
	stopped := func(w *world, b *incident.Mailbox) {
		dead(w, b)
		b.Stopped = b.Dead
	}
	pausing := func(_ *world, b *incident.Mailbox) {
		b.Failing = []incident.Turn{{Text: "order/3", Tag: key(1, 3), Attempts: 3, Err: "no model"}}
	}
	for name, c := range map[string]struct {
		raise, control *world
		verdict        string
		severity       incident.Severity
		evidence       string
	}{
		"its node is gone": {
			mailed(unserved).lasts(), mailed().lasts(),
			incident.StuckTurn, incident.Critical, "0 nodes serve it",
		},
		"its node was just lost": { // 1.7 s is how long pglatch verdicts looks
			mailed(unserved).look(0).look(1700 * time.Millisecond), mailed(unserved).look(0).look(time.Second),
			incident.StuckTurn, incident.Critical, "web-1/X claimed it 10 s ago",
		},
		"its node was lost soon after the claim": {
			mailed(unserved, runsFor(3*time.Second)).lasts(), mailed(unserved, runsFor(2*time.Second)).lasts(),
			incident.StuckTurn, incident.Critical, "web-1/X claimed it 3.0 s ago",
		},
		"it ignores an interrupt": {
			mailed(interrupted).lasts(), mailed(interrupted).looks(),
			incident.StuckTurn, incident.Warning, "web-1/X has had it",
		},
		"it runs for long": {
			mailed(runsFor(time.Hour)).look(0), mailed(runsFor(4*time.Minute), behind).lasts(),
			incident.StuckTurn, incident.Note, "attempt 1",
		},
		"it runs for long, and messages wait": {
			mailed(runsFor(time.Hour), behind).look(0), mailed(behind).look(0),
			incident.StuckTurn, incident.Warning, "messages came after it began",
		},
		"no node serves": {
			mailed(unserved, ready(3, 10*time.Second)).lasts(), mailed(ready(3, 10*time.Second)).lasts(),
			incident.GrowingBacklog, incident.Critical, "3 entities are ready, the first for 10 s",
		},
		"a node was just restarted": {
			mailed(unserved, ready(3, 10*time.Second)).lasts(), mailed(unserved, ready(3, time.Second)).lasts(),
			incident.GrowingBacklog, incident.Critical, "0 nodes serve it",
		},
		"late": {
			mailed(ready(1, time.Minute)).looks(), mailed(ready(1, 20*time.Second)).looks(),
			incident.GrowingBacklog, incident.Warning, "1 entity is ready",
		},
		"stopped": {
			mailed(stopped).look(0), mailed(pausing).look(0),
			incident.PoisonMessage, incident.Critical, "no model",
		},
		"failing": {
			mailed(pausing).look(0), mailed(dead).look(0),
			incident.PoisonMessage, incident.Warning, "no model",
		},
		"a running one failed": {
			mailed(fails(4)).look(0), mailed(fails(3)).look(0),
			incident.PoisonMessage, incident.Warning, "no model",
		},
		"dead letters": {
			mailed(dead).look(0), mailed().look(0),
			incident.PoisonMessage, incident.Note, "order/2, 1 min 0 s ago, after 5 attempts: no model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := requireVerdict(t, c.raise, c.verdict)
			assert.Equal(t, c.severity, v.Severity, v.Text)
			assert.Contains(t, strings.Join(v.Evidence, "\n"), c.evidence)
			assert.NotEmpty(t, v.Advice)
			assert.Equal(t, "docs/how-to/incidents-of-turns.md#"+c.verdict, v.Doc)
			if quiet := c.control.has(c.verdict); quiet != nil {
				assert.NotEqual(t, c.severity, quiet.Severity, "control: %s", quiet.Text)
			}
		})
	}
	assert.Empty(t, mailed().lasts().found, "control: a turn that runs")
}

func TestTheAdviceAboutATurnIsACommandThatWorks(t *testing.T) {
	t.Parallel()
	stopped := func(_ *world, b *incident.Mailbox) { b.Space, b.Stopped = "order=1", b.Turns }
	advice := func(w *world) string { return requireVerdict(t, w.look(0), incident.PoisonMessage).Advice }
	one := mailed(stopped)
	one.Mailboxes = append(one.Mailboxes, incident.Mailbox{Name: "news", Space: "stock=2"})
	assert.Contains(t, advice(one), "pglatch turns retry order/1. ", "control: no other mailbox has the namespace")
	several := mailed(stopped)
	several.Mailboxes = append(several.Mailboxes, incident.Mailbox{Name: "news", Space: "order=1"})
	assert.Contains(t, advice(several), "pglatch turns skip order/1 --mailbox chat.")
	hostile := mailed(stopped, turn(func(t *incident.Turn) { t.Text = "order/1; reboot" }))
	assert.Contains(t, advice(hostile), "pglatch turns show 'order/1; reboot'. ")
	hidden := mailed(stopped)
	hidden.Text = func(namespace.Tag, string) (string, bool) { return "order/…", false }
	assert.Contains(t, advice(hidden), "pglatch turns retry KEY. ")
}

func TestABacklogThatGrowsIsFoundAndOneThatIsServedIsNot(t *testing.T) {
	t.Parallel()
	for name, grows := range map[string]bool{"grows": true, "control: rises and falls": false} {
		w := mailed(ready(4, 2*time.Second))
		for i := range 6 {
			w.look(time.Second)
			w.Mailboxes[0].Ready += 4
			if !grows && i%2 == 1 {
				w.Mailboxes[0].Ready = 4
			}
		}
		w.look(time.Second)
		if !grows {
			assert.Nil(t, w.has(incident.GrowingBacklog), name)
			continue
		}
		assert.Regexp(t, `The backlog of the mailbox chat grows: 28 entities are ready, up from \d+ \S+ s ago`, requireVerdict(t, w, incident.GrowingBacklog).Text)
	}
}

// A node holds its lock for as long as it runs, and another node waits for it.
func TestTheLockOfANodeIsHeldForNoVerdict(t *testing.T) {
	t.Parallel()
	long := func(w *world, _ *incident.Mailbox) {
		w.Rows[0].Age = time.Hour
		w.answer("web-1").Locks[0].Age = time.Hour
		w.process("web-2", 901)
		w.waits("web-2", 8, nodeTag)
	}
	w := mailed(long).looks()
	assert.Empty(t, w.found)
	for _, k := range w.last.Keys {
		if k.Tag == nodeTag {
			assert.Equal(t, "node web-1/X of chat", k.Text)
		}
	}
	w = mailed(long)
	w.Mailboxes = nil
	assert.Equal(t, incident.Warning, requireVerdict(t, w.looks(), incident.HeldLong).Severity, "control: the lock of nobody known")
}

func TestARedactedEntityHasNoError(t *testing.T) {
	t.Parallel()
	w := mailed(turn(func(t *incident.Turn) { t.Attempts, t.Err = 4, "order 1 has no model" }))
	w.Text = func(namespace.Tag, string) (string, bool) { return "order/…", false }
	v := requireVerdict(t, w.look(0), incident.PoisonMessage)
	assert.NotContains(t, strings.Join(append(v.Evidence, v.Text, v.Subject), " "), "order 1")
	require.Equal(t, "order/…", v.Key)
}
