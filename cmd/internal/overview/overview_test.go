package overview_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

var orders = namespace.Must(2, "order")

func key(t *testing.T, entity string) namespace.Key {
	t.Helper()
	k, err := orders.Text(entity)
	require.NoError(t, err)
	return k
}

func companion(t *testing.T, k namespace.Key, role string) namespace.Tag {
	t.Helper()
	c, err := k.Companion(role)
	require.NoError(t, err)
	return c.Tag()
}

// held is a lock as a viewer sees it who knows no names.
func held(tag namespace.Tag, pid uint32, application string) monitor.Lock {
	return monitor.Lock{
		Tag: tag, PID: pid, ApplicationName: application, Key: monitor.Key{Text: tag.String()}, Mode: "ExclusiveLock", Granted: true, Duration: 2,
	}
}

func waits(tag namespace.Tag, pid uint32, application string) monitor.Lock {
	l := held(tag, pid, application)
	l.Granted, l.Duration = false, 0.3
	return l
}

func snapshot(locks ...monitor.Lock) monitor.Snapshot {
	return monitor.Snapshot{Locks: locks, Total: len(locks)}
}

func billing(pid int) introspect.Process {
	return introspect.Process{Service: "billing", Host: "web-3", PID: pid}
}

func of(s monitor.Snapshot, a introspect.Answers, known ...namespace.Key) []*overview.Row {
	s.Answers = a
	return overview.Of(s, known...)
}

func cells(rows []*overview.Row) [][]string {
	overview.Sort(rows, overview.ByKey)
	all := [][]string{}
	for _, r := range rows {
		all = append(all, r.Cells())
	}
	return all
}

func TestAProcessTellsTheNameTheTimeAndWhoWaitsInIt(t *testing.T) {
	t.Parallel()
	k := key(t, "o-9f3c") // text: a hash in PostgreSQL
	rows := of(snapshot(held(k.Tag(), 11, "app"), waits(k.Tag(), 22, "app"), waits(k.Tag(), 33, "psql")), introspect.Answers{Answers: []introspect.Answer{
		{Process: billing(1), Locks: []introspect.Lock{{Key: k.String(), Tag: k.Tag(), Session: 11, Age: 4 * time.Minute, Label: "nightly"}}},
		{Process: billing(2), Waits: []introspect.Wait{
			{Key: k.String(), Tag: k.Tag(), Session: 22, Age: 90 * time.Second, Label: "first"},
			{Key: k.String(), Tag: k.Tag(), Age: 30 * time.Second},
		}},
	}})
	assert.Equal(t, [][]string{{"order/o-9f3c", "exclusive", "billing@web-3:1", "4m0s", "3", "1m30s", "11", "nightly"}}, cells(rows))
	var waiters []string
	for _, w := range rows[0].Waiters {
		waiters = append(waiters, w.Name+" "+w.Lasted())
	}
	assert.Equal(t, []string{"billing@web-3:2 1m30s", "billing@web-3:2 30s", "psql ≥300ms"}, waiters, "a wait step is not the wait")
}

func TestEachRowOfAProcessNamesTheServiceOfItsPart(t *testing.T) {
	t.Parallel()
	first, second, third := key(t, "1"), key(t, "2"), key(t, "3")
	named := func(other string) (all []string) {
		rows := of(snapshot(held(first.Tag(), 11, "app"), held(second.Tag(), 12, "app"), held(third.Tag(), 13, "app")), introspect.Answers{Answers: []introspect.Answer{{
			Process: billing(1),
			Locks: []introspect.Lock{
				{Key: first.String(), Tag: first.Tag(), Session: 11}, {Key: second.String(), Tag: second.Tag(), Session: 12, Service: other},
			},
			Waits:     []introspect.Wait{{Key: first.String(), Tag: first.Tag(), Service: other}},
			Elections: []introspect.Election{{Key: third.String(), Tags: []namespace.Tag{third.Tag()}, State: "leader", Session: 13, Service: other}},
		}}})
		overview.Sort(rows, overview.ByKey)
		for _, r := range rows {
			for _, p := range append(r.Holders, r.Waiters...) {
				all = append(all, r.Key+" "+p.Name)
				assert.Equal(t, p.Name, overview.ProcessName(*p.Process), "in a document, too")
			}
		}
		return all
	}
	assert.Equal(t, []string{"order/1 billing@web-3:1", "order/1 report@web-3:1", "order/2 report@web-3:1", "order/3 report@web-3:1"}, named("report"))
	assert.Equal(t, []string{"order/1 billing@web-3:1", "order/1 billing@web-3:1", "order/2 billing@web-3:1", "order/3 billing@web-3:1"}, named(""),
		"control: of one service, or of a version that does not name the services of parts")
}

func TestWithoutAnswersPostgreSQLIsBelieved(t *testing.T) {
	t.Parallel()
	k := key(t, "42")
	l := held(k.Tag(), 11, "app")
	l.Key.Text = "order/42" // by the viewer's own namespaces
	rows := of(snapshot(l, waits(k.Tag(), 22, "app")), introspect.Answers{})
	assert.Equal(t, [][]string{{"order/42", "exclusive", "app", "≥2s", "1", "≥300ms", "11", "-"}}, cells(rows))
}

func TestASemaphoreIsOneRow(t *testing.T) {
	t.Parallel()
	k := key(t, "42")
	slot0, slot2, gate := companion(t, k, "slot0"), companion(t, k, "slot2"), companion(t, k, "turnstile")
	s := snapshot(held(slot0, 11, "app"), held(slot2, 12, "app"), held(gate, 13, "app"), waits(gate, 14, "app"))
	told := introspect.Answers{Answers: []introspect.Answer{{
		Process: billing(1),
		Locks: []introspect.Lock{
			{Key: "order/42#slot0", Tag: slot0, Semaphore: "order/42", Slots: 2, Session: 11, Age: time.Minute},
			{Key: "order/42#slot2", Tag: slot2, Semaphore: "order/42", Slots: 3, Session: 12, Age: time.Second},
		},
	}}}
	assert.Equal(t, [][]string{{"order/42", "2 of 3 slots", "billing@web-3:1 and 1 more", "1m0s", "2", "≥2s", "11", "-"}}, cells(of(s, told)))
	s.Locks = append(s.Locks, held(k.Tag(), 15, "psql"))
	assert.Equal(t, "order/42", of(s, told)[0].Key, "a lock on its key, which no process names, is another row")
	s.Locks = s.Locks[:4]
	told.Answers[0].Locks = told.Answers[0].Locks[1:]
	assert.Equal(t, [][]string{{"order/42", "2 of 3 slots", "app and 1 more", "≥2s", "2", "≥2s", "11", "-"}}, cells(of(s, told)), "no process reports slot 0")
	assert.Equal(t, [][]string{{"order/42", "2 slots", "app and 1 more", "≥2s", "2", "≥2s", "11", "-"}},
		cells(of(s, introspect.Answers{}, k)), "who asks for it by name needs no answer")
	assert.Len(t, of(s, introspect.Answers{}), 3, "else nobody knows what the locks are")
}

// An answer is older than the locks, and has room for so many waits.
func TestAWaitThatNoProcessReportsIsShown(t *testing.T) {
	t.Parallel()
	k, other := key(t, "42"), key(t, "43")
	rows := of(snapshot(held(k.Tag(), 11, "app"), waits(other.Tag(), 11, "app")), introspect.Answers{Answers: []introspect.Answer{{
		Process: billing(1), Locks: []introspect.Lock{{Key: k.String(), Tag: k.Tag(), Session: 11, Age: time.Minute}},
	}}})
	assert.Equal(t, [][]string{
		{"order/42", "exclusive", "billing@web-3:1", "1m0s", "-", "-", "11", "-"}, {"2:43", "exclusive", "nobody", "-", "1", "≥300ms", "-", "-"},
	}, cells(rows))
	assert.Equal(t, "billing@web-3:1", rows[1].Waiters[0].Name, "its session is known")
}

func TestAnElectionIsOneRow(t *testing.T) {
	t.Parallel()
	k := key(t, "7")
	election := electionkeys.Of(k.Tag())
	s := snapshot(held(election.Incarnation(9), 11, "a"), held(k.Tag(), 11, "a"), waits(k.Tag(), 12, "b"))
	rows := of(s, introspect.Answers{})
	assert.Equal(t, [][]string{{"2:7", "election", "a", "≥2s", "1", "≥300ms", "11", "-"}}, cells(rows), "its second lock shows what it is")

	tags := []namespace.Tag{k.Tag(), election.Incarnation(9)}
	rows = of(s, introspect.Answers{Answers: []introspect.Answer{
		{Process: billing(1), Elections: []introspect.Election{{Name: "nightly", Key: "order/7", Tags: tags, Node: "n1", State: "leader", Age: time.Hour, Term: "1.4", Session: 11}}},
		{Process: billing(2), Elections: []introspect.Election{{Name: "nightly", Key: "order/7", Tags: tags[:1], Node: "n2", State: "follower", Age: time.Minute, Session: 12}}},
		{Process: billing(3), Elections: []introspect.Election{{Name: "nightly", Key: "order/7", Tags: tags[:1], Node: "n3", State: "follower", Age: time.Second, Error: "no route"}}},
	}})
	assert.Equal(t, [][]string{{"order/7", "election", "billing@web-3:1", "1h0m", "2", "1m0s", "11", "-"}}, cells(rows))
	assert.Equal(t, "node n1, leader, term 1.4", rows[0].Holders[0].Note)
	assert.Equal(t, "node n3, follower, last attempt failed: no route", rows[0].Waiters[1].Note)

	raw := namespace.Pair(7, 1).Tag()
	told := introspect.Answers{Answers: []introspect.Answer{{Process: billing(1), Elections: []introspect.Election{
		{Name: "nightly", Key: "7:1", Tags: []namespace.Tag{raw}, Node: "n1", State: "follower", Age: time.Minute},
	}}}}
	assert.Equal(t, [][]string{{"7:1", "election", "nobody", "-", "1", "1m0s", "-", "-"}}, cells(of(snapshot(), told)))
	l := held(raw, 11, "a")
	l.Key.Text = "agent/1" // by the viewer's own namespaces
	assert.Equal(t, "agent/1", of(snapshot(l), told)[0].Key)
}

func TestAHolderThatDoesNotAnswerIsSilent(t *testing.T) {
	t.Parallel()
	k, other := key(t, "1"), key(t, "2")
	stopped := held(k.Tag(), 11, "app")
	stopped.Silent = true // says the monitor
	rows := of(snapshot(stopped, held(other.Tag(), 12, "psql")), introspect.Answers{})
	assert.Equal(t, "app (silent)", rows[0].Cells()[2])
	assert.Equal(t, "psql", rows[1].Cells()[2], "it never listened")
	overview.Sort(rows, overview.ByTrouble)
	assert.Equal(t, k.Tag(), rows[0].Tag)
}

func TestHiddenEntitiesStayApart(t *testing.T) {
	t.Parallel()
	one, two := key(t, "a"), key(t, "b")
	a := introspect.Answers{Answers: []introspect.Answer{{Process: billing(1), Locks: []introspect.Lock{
		{Key: "order/…", Tag: one.Tag(), Session: 11, Age: time.Second}, {Key: "order/…", Tag: two.Tag(), Session: 11, Age: time.Minute},
	}}}}
	rows := of(snapshot(held(one.Tag(), 11, "app"), held(two.Tag(), 11, "app")), a)
	require.Len(t, rows, 2)
	assert.Equal(t, "order/…", rows[0].Key)
	n, ok := overview.Namespaces(a).Named("order")
	assert.True(t, ok)
	assert.Equal(t, 2, n.Number(), "their namespace is known")
}

func TestANameOfTwoNumbersIsNoName(t *testing.T) {
	t.Parallel()
	answer := func(names map[string]namespace.Tag) introspect.Answer {
		a := introspect.Answer{}
		for text, tag := range names {
			a.Locks = append(a.Locks, introspect.Lock{Key: text, Tag: tag})
		}
		return a
	}
	set := overview.Namespaces(introspect.Answers{Answers: []introspect.Answer{
		answer(map[string]namespace.Tag{"order/1": key(t, "1").Tag(), "agent/1": namespace.Pair(1, 1).Tag(), "car/1": namespace.Pair(4, 1).Tag(), "1:1": namespace.Pair(1, 1).Tag()}),
		answer(map[string]namespace.Tag{"order/1": namespace.Pair(3, 1).Tag(), "auto/1": namespace.Pair(4, 1).Tag()}),
	}})
	var names []string
	for n := range set.All() {
		names = append(names, n.String())
	}
	assert.Equal(t, []string{"agent=1"}, names)
}

func TestFiltersAndOrders(t *testing.T) {
	t.Parallel()
	set, err := namespace.NewSet(orders, namespace.Must(1, "agent"))
	require.NoError(t, err)
	row := func(name, holder string, held time.Duration, waits ...time.Duration) *overview.Row {
		k, err := set.Parse(name)
		require.NoError(t, err)
		r := &overview.Row{Key: name, Tag: k.Tag(), Holders: []overview.Party{{Name: holder, PID: 1, Age: held}}}
		for _, w := range waits {
			r.Waiters = append(r.Waiters, overview.Party{Name: "W", Label: "Nightly", Age: w})
		}
		return r
	}
	rows := []*overview.Row{
		row("agent/1", "billing", time.Hour),
		row("order/10", "Billing", time.Second, 2*time.Second),
		row("order/9", "shop", time.Minute, time.Second, time.Second),
	}
	names := func(rows []*overview.Row) (all []string) {
		for _, r := range rows {
			all = append(all, r.Key)
		}
		return all
	}
	for by, want := range map[string][]string{
		overview.ByKey:     {"agent/1", "order/9", "order/10"},
		overview.ByTrouble: {"order/10", "order/9", "agent/1"},
		overview.ByWait:    {"order/10", "order/9", "agent/1"},
		overview.ByWaiters: {"order/9", "order/10", "agent/1"},
		overview.ByHeld:    {"agent/1", "order/9", "order/10"},
	} {
		overview.Sort(rows, by)
		assert.Equal(t, want, names(rows), by)
	}
	overview.Sort(rows, overview.ByKey)
	for _, c := range []struct {
		filter overview.Filter
		want   []string
	}{
		{overview.Filter{}, []string{"agent/1", "order/9", "order/10"}},
		{overview.Filter{Prefix: "order/"}, []string{"order/9", "order/10"}},
		{overview.Filter{Tag: namespace.Pair(2, 9).Tag()}, []string{"order/9"}},
		{overview.Filter{App: "BILL"}, []string{"agent/1", "order/10"}},
		{overview.Filter{LongerThan: time.Minute}, []string{"agent/1", "order/9"}},
		{overview.Filter{Waiting: true}, []string{"order/9", "order/10"}},
		{overview.Filter{Text: "night"}, []string{"order/9", "order/10"}},
		{overview.Filter{Namespaces: []string{"agent"}}, []string{"agent/1"}},
		{overview.Filter{Namespaces: []string{"1"}}, []string{"agent/1"}},
	} {
		assert.Equal(t, c.want, names(c.filter.Apply(rows)), "%+v", c.filter)
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		340 * time.Millisecond: "300ms", 61*time.Second + 400*time.Millisecond: "1m1s", 3*time.Hour + 25*time.Minute: "3h25m", 50*time.Hour + time.Minute: "2d2h",
	} {
		assert.Equal(t, want, overview.Duration(d))
	}
}

func TestAShardIsNamedByItsNodeAlsoWhereTheAnswerHadNoRoomForIt(t *testing.T) {
	t.Parallel()
	k, beyond := key(t, "acme"), key(t, "beyond")
	rows := of(snapshot(held(k.Tag(), 11, "web-3"), held(beyond.Tag(), 11, "web-3")), introspect.Answers{Answers: []introspect.Answer{{
		Process: billing(1), Groups: []introspect.Group{{Name: "order=2", Number: 2, Node: "web-3", Session: 11, Owned: 2}},
		Locks: []introspect.Lock{{Key: k.String(), Tag: k.Tag(), Group: "order=2", Session: 11, Age: time.Hour}},
	}}, Silent: []introspect.Silent{{Session: 99, ApplicationName: "web-3"}}})
	require.Len(t, rows, 2)
	for _, r := range rows {
		assert.Equal(t, "billing@web-3:1", r.Holders[0].Name)
		assert.False(t, r.Silent(), "another process of its name is")
	}
	overview.Sort(rows, overview.ByHeld)
	assert.Equal(t, []string{"order/acme", "shard", "billing@web-3:1", "1h0m", "-", "-", "11", "-"}, rows[0].Cells())
}

func TestADocumentHasOneUnitOfTime(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(overview.Party{Name: "web-1", Age: 1500 * time.Millisecond, Left: 250 * time.Millisecond})
	require.NoError(t, err)
	assert.JSONEq(t, `{"name": "web-1", "pid": 0, "exact": false, "duration": 1.5, "left": 0.25}`, string(text))
}

func TestTheShardsOfAGroupHaveTheirPinsAndMoves(t *testing.T) {
	t.Parallel()
	lines := func(g fleet.Group) (all [][]string, trouble int) {
		for _, l := range overview.Fleet(&fleet.Fleet{Groups: []fleet.Group{g}})[0].Lines {
			if all = append(all, l.Cells); l.Trouble {
				trouble++
			}
		}
		return all, trouble
	}
	g := fleet.Group{
		Name: "tenant=7", Shards: 3, Owned: 2, Moves: 2, Nodes: []fleet.Node{{Identity: "a", Owned: 2, Fair: 2}, {Identity: "b", Fair: 1, Draining: true}, {Identity: "c", Away: true, Drained: true}},
		List: []fleet.Shard{{Name: "x", Owner: "a", Pin: "a"}, {Name: "y", Owner: "a", Pin: "gone"}, {Name: "z", Pin: "a"}},
	}
	all, trouble := lines(g)
	assert.Equal(t, [][]string{
		{"tenant=7", "a", "2", "2", "2", "-"},
		{"tenant=7", "b", "0", "1", "0", "draining"},
		{"tenant=7", "c", "0", "0", "0", "away, drained"},
		{"tenant=7", "gone", "0", "0", "1", "takes no part"},
		{"tenant=7", "nobody", "1", "0", "0", "-"},
		{"tenant=7", "all", "2", "3", "-", "2 moved in the last minute"},
	}, all)
	assert.Equal(t, 4, trouble)

	g = fleet.Group{Name: "tenant=7", Shards: 1, Owned: 1, Nodes: []fleet.Node{{Identity: "a", Owned: 1, Fair: 1}}, List: []fleet.Shard{{Name: "x", Owner: "a"}}}
	all, trouble = lines(g)
	assert.Equal(t, [][]string{{"tenant=7", "a", "1", "1", "0", "-"}}, all, "control: a group at rest")
	assert.Zero(t, trouble)
}
