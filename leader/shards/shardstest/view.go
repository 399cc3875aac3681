package shardstest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// members returns what is to be seen of each.
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
		self := shards.Member{Identity: "a", Weight: 50, List: 1<<63 + 5, Draining: true}
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
		s.claim(b, "1", "2")
		s.hears(a, func() { s.release(b, "1") }, "a release")
		s.hears(a, func() { require.NoError(s, b.Leave(s.context())) }, "a leave")
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
}

// hears checks that a session gets a signal by what a change does.
func (s *suite) hears(o shards.Session, change func(), what string) {
	s.Helper()
	for quiet := false; !quiet; { // of what was before
		select {
		case <-o.Changed():
		default:
			quiet = true
		}
	}
	change()
	select {
	case <-o.Changed():
	case <-s.context().Done():
		require.Fail(s, "nothing was heard", what)
	}
}
