package shardstest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

var ownershipCases = []testCase{
	{"of many sessions one owns each shard", func(s *suite) {
		const nodes, n = 5, 40
		names := many("s", n)
		var sessions []shards.Session
		for i := range nodes {
			sessions = append(sessions, s.open(fmt.Sprint("node-", i)))
		}
		var mu sync.Mutex
		owned := map[string]int{}
		var claims sync.WaitGroup
		for i, o := range sessions {
			claims.Go(func() {
				mine := slices.Concat(names[i*n/nodes:], names[:i*n/nodes]) // each begins at another shard
				for part := range slices.Chunk(mine, 8) {
					grants, err := o.Claim(s.context(), part)
					assert.NoError(s, err)
					mu.Lock()
					for _, g := range grants {
						owned[g.Name]++
					}
					mu.Unlock()
				}
			})
		}
		claims.Wait()
		for _, name := range names {
			assert.Equal(s, 1, owned[name], "owners of %s", name)
		}
	}},
	{"a claim gets what is free, and leaves the rest to its owners", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		assert.Equal(s, []string{"2", "4"}, s.claim(a, "4", "2"))
		assert.Equal(s, []string{"1", "3"}, s.claim(b, "1", "2", "3", "4"))
		assert.Empty(s, s.claim(a, "1", "3"))
		assert.Empty(s, s.claim(b))
		s.release(b)
	}},
	{"two sessions of one node exclude each other", func(s *suite) {
		b := s.node()
		one, two := s.openOn(b, "a"), s.openOn(b, "a")
		assert.Equal(s, []string{"1"}, s.claim(one, "1"))
		assert.Equal(s, []string{"2"}, s.claim(two, "1", "2"))
		s.release(two, "1", "2")
		assert.Equal(s, []string{"2"}, s.claim(one, "2"), "it was the other's to release")
		assert.Empty(s, s.claim(two, "1"), "it was not")
	}},
	{"a release frees shards at once, and no others", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		s.claim(a, "1", "2", "3")
		s.release(a, "1", "3")
		assert.Equal(s, []string{"1", "3"}, s.claim(b, "1", "2", "3"))
		s.release(a, "1", "2")
		s.release(a, "1", "2")
		assert.Equal(s, []string{"2"}, s.claim(b, "2"))
		assert.Empty(s, s.claim(a, "1"), "the second owner's was not released by the first")
	}},
	{"terms of a shard rise, whoever owns it and however that ended", func(s *suite) {
		last := shards.Term{}
		next := func(o shards.Session) bool {
			grants := s.grants(o, "1")
			if len(grants) == 0 {
				return false
			}
			require.Equal(s, 1, grants[0].Term.Compare(last), "%v follows %v", grants[0].Term, last)
			last = grants[0].Term
			return true
		}
		a, other := s.open("a"), s.node()
		b := s.openAlone(other, "b")
		require.True(s, next(a))
		s.release(a, "1")
		require.True(s, next(b))
		s.end(other, b)
		s.eventually(func() bool { return next(a) }, "what a session owned that ended is free")
		require.NoError(s, a.Leave(s.context()))
		c := s.open("c")
		s.eventually(func() bool { return next(c) }, "what a session owned that left is free")
	}},
	{"a session owns thousands", func(s *suite) {
		n := s.h.Many
		if n == 0 {
			n = 2000
		}
		names := many("s", n)
		a, b := s.open("a"), s.open("b")
		assert.Len(s, s.claim(a, names...), n)
		_, err := a.Renew(s.context(), s.ttl)
		require.NoError(s, err)
		assert.Len(s, s.look(b).Owners, n)
		s.release(a, names[:n/2]...)
		assert.Equal(s, names[:n/2], s.claim(b, names...))
	}},
	{"a claim whose ctx has ended leaves nothing behind that a release does not end", func(s *suite) {
		a, b := s.open("a"), s.open("b")
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, err := a.Claim(ctx, []string{"1", "2"})
		require.Error(s, err)
		_ = a.Release(s.context(), []string{"1", "2"}) // if it fails, they end by the ttl
		s.eventually(func() bool { s.claim(b, "1", "2"); return len(s.look(b).Owners) == 2 }, "they are free")
	}},
}

// many returns n names, sorted.
func many(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%06d", prefix, i)
	}
	return names
}
