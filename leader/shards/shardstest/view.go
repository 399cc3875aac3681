package shardstest

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// members returns the visible members by identity.
func members(v shards.View) map[string]shards.Member {
	all := map[string]shards.Member{}
	for _, m := range v.Members {
		all[m.Identity] = m
	}
	return all
}

var viewCases = []testCase{
	{"everybody sees who takes part, and who owns what", func(s *suite) {
		b := s.node()
		one, two, c := s.openOn(b, "node-a"), s.openOn(b, "node-a"), s.open("node-c")
		s.claim(one, "1")
		s.claim(two, "2")
		s.claim(c, "3")
		for _, o := range []shards.Session{one, two, c} {
			v := s.look(o)
			require.Len(s, v.Members, 2, "each once")
			assert.Equal(s, map[string]shards.Member{"node-a": member("node-a"), "node-c": member("node-c")}, members(v))
			assert.Equal(s, map[string]string{"1": "node-a", "2": "node-a", "3": "node-c"}, v.Owners)
		}
		require.NoError(s, c.Leave(s.context()))
		v := s.look(one)
		assert.Equal(s, map[string]shards.Member{"node-a": member("node-a")}, members(v))
		assert.Equal(s, map[string]string{"1": "node-a", "2": "node-a"}, v.Owners)
	}},
	{"what a node says of itself can change", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		self := shards.Member{Identity: "a", Weight: 50, List: 1<<63 + 5, Draining: true, Refuses: "12ab,ff"}
		require.NoError(s, a.Announce(s.context(), self))
		assert.Equal(s, self, members(s.look(b))["a"])
		assert.Equal(s, member("b"), members(s.look(b))["b"])
	}},
	{"a version stands for one view", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		known := s.look(a).Version
		if known == 0 {
			s.Skip("there are no versions")
		}
		for _, change := range []func(){
			func() { s.claim(b, "1") },
			func() { s.release(b, "1") },
			func() { s.open("c") },
			func() { require.NoError(s, b.Announce(s.context(), shards.Member{Identity: "b", Weight: 1})) },
		} {
			change()
			v, err := a.Look(s.context(), known)
			require.NoError(s, err)
			assert.NotEqual(s, known, v.Version)
			assert.NotEmpty(s, v.Members)
			known = v.Version
		}
	}},
	{"a node hears of shards that become free", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		if a.Changed() == nil {
			s.Skip("it looks from time to time")
		}
		names := append(many("s", 1000), `a "2" ü`)
		s.claim(b, append(names, "kept")...)
		released, heard := map[string]bool{}, map[string]bool{}
		for _, name := range names {
			released[name] = true
		}
		changes := s.hears(a, func() { s.release(b, names...) }, "a release")
		require.True(s, changes.Other || len(changes.Released) > 0, "the changes name the released shards, or ask for a look")
		s.eventually(func() bool {
			for _, name := range changes.Released {
				require.True(s, released[name], "%q was not released", name)
				heard[name] = true
			}
			over := changes.Other || len(heard) >= len(names)
			changes = a.Changes()
			return over
		}, "it is told their names, or to look")
		changes = s.hears(a, func() {
			require.NoError(s, b.Announce(s.context(), shards.Member{Identity: "b", Weight: 100, List: 7, Draining: true}))
		}, "an announcement")
		s.eventually(func() bool {
			over := changes.Other || slices.Contains(changes.Leaving, "b")
			changes = a.Changes()
			return over
		}, "it is told who leaves, or to look")
		changes = s.hears(a, func() { require.NoError(s, b.Leave(s.context())) }, "a leave")
		s.eventually(func() bool { changes = changes.And(a.Changes()); return changes.Other }, "it is told to look")
	}},
	{"people pin shards and drain members", func(s *suite) {
		b := s.node()
		operator, ok := b.(shards.Operator)
		if !ok {
			s.Skipf("%T is no Operator", b)
		}
		a, c := s.openOn(b, "a"), s.open("c")
		require.NoError(s, operator.Pin(s.context(), "1", "c"))
		require.NoError(s, operator.Pin(s.context(), "2", "nobody"))
		require.NoError(s, operator.Drain(s.context(), "c", true))
		require.NoError(s, operator.Drain(s.context(), "nobody", true))
		v := s.look(a)
		assert.Equal(s, map[string]string{"1": "c", "2": "nobody"}, v.Pins)
		assert.True(s, members(v)["c"].Draining)
		assert.False(s, members(v)["a"].Draining)

		require.NoError(s, c.Leave(s.context()))
		d := s.open("c")
		assert.True(s, members(s.look(d))["c"].Draining, "it stays when the node comes back")
		require.NoError(s, operator.Pin(s.context(), "1", ""))
		require.NoError(s, operator.Drain(s.context(), "c", false))
		v = s.look(a)
		assert.Equal(s, map[string]string{"2": "nobody"}, v.Pins)
		assert.False(s, members(v)["c"].Draining)
	}},
	{"who takes no part sees members, owners and what nobody owns", func(s *suite) {
		observer, ok := s.node().(shards.Observer)
		if !ok {
			s.Skipf("%T is no Observer", s.node())
		}
		o := s.observe(observer)
		assert.Empty(s, o.Members, "nothing is known yet")
		assert.Empty(s, o.Owners)
		assert.Empty(s, o.Terms)
		a, c := s.open("a"), s.open("c")
		terms := map[string]shards.Term{}
		for _, g := range slices.Concat(s.grants(a, "1", "2"), s.grants(c, "3", "4")) {
			terms[g.Name] = g.Term
		}
		s.release(a, "2")
		self := shards.Member{Identity: "c", Weight: 50, List: 1<<63 + 5, Draining: true}
		require.NoError(s, c.Announce(s.context(), self))
		o = s.observe(observer)
		assert.Equal(s, map[string]shards.Member{"a": member("a"), "c": self}, members(o.View), "it is none itself")
		assert.Equal(s, map[string]string{"1": "a", "3": "c", "4": "c"}, o.Owners)
		assert.Equal(s, terms, o.Terms)
		assert.Empty(s, o.Drained, "it was not asked to")
		assert.Zero(s, o.Version)
		assert.Equal(s, members(o.View), members(s.look(a)), "no node sees it")

		require.NoError(s, c.Leave(s.context()))
		require.NoError(s, a.Leave(s.context()))
		o = s.observe(observer)
		assert.Empty(s, o.Members)
		assert.Empty(s, o.Owners)
		assert.Equal(s, slices.Sorted(maps.Keys(terms)), slices.Sorted(maps.Keys(o.Terms)), "they are known when nobody is there")
	}},
	{"who takes no part sees pins and drains, also of nodes that are away", func(s *suite) {
		b := s.node()
		observer, ok := b.(shards.Observer)
		operator, too := b.(shards.Operator)
		if !ok || !too {
			s.Skipf("%T is no Observer and Operator", b)
		}
		s.open("c")
		require.NoError(s, operator.Pin(s.context(), "1", "away"))
		for _, identity := range []string{"c", "away"} {
			require.NoError(s, operator.Drain(s.context(), identity, true))
		}
		o := s.observe(observer)
		assert.Equal(s, map[string]string{"1": "away"}, o.Pins)
		assert.Equal(s, []string{"away", "c"}, o.Drained)
		assert.True(s, members(o.View)["c"].Draining)
		assert.NotContains(s, members(o.View), "away")

		require.NoError(s, operator.Pin(s.context(), "1", ""))
		require.NoError(s, operator.Drain(s.context(), "away", false))
		o = s.observe(observer)
		assert.Empty(s, o.Pins)
		assert.Equal(s, []string{"c"}, o.Drained)
	}},
}

func (s *suite) observe(o shards.Observer) shards.Observation {
	s.Helper()
	all, err := o.Observe(s.context())
	require.NoError(s, err, "observing")
	return all
}

// hears checks that a session receives a signal when change runs, and returns its Changes.
func (s *suite) hears(o shards.Session, change func(), what string) shards.Changes {
	s.Helper()
	for quiet := false; !quiet; { // drain earlier signals
		select {
		case <-o.Changed():
		default:
			quiet = true
		}
	}
	o.Changes()
	change()
	select {
	case <-o.Changed():
	case <-s.context().Done():
		require.Fail(s, "nothing was heard", what)
	}
	return o.Changes()
}
