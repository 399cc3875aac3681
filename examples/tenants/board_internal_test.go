package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// seen returns a group whose members A, B and C own the shards named in owners; "" is nobody.
func seen(owners string, terms ...uint64) (g shards.Group) {
	for _, identity := range []string{"A", "B", "C"} {
		n := strings.Count(owners, identity)
		g.Members = append(g.Members, shards.Member{Member: driver.Member{Identity: identity}, Owned: n})
	}
	for i, owner := range owners {
		name := string(rune('1' + i))
		g.Shards = append(g.Shards, shards.Seen{Name: name, Owner: strings.Trim(string(owner), "."), Term: leader.Term{N: terms[i]}})
	}
	return g
}

func TestABoardCountsWhoOwnsWhatAndWhatHasMoved(t *testing.T) {
	t.Parallel()
	b := newBoard([]string{"1", "2", "3", "4"})
	g := seen("AAB.", 1, 1, 1, 1)
	g.Members[2].Away = true
	b.see(g)
	assert.Equal(t, "A 2  B 1  nobody 1   moves 0   highest term 0.1", b.summary(strings.Clone))
	assert.False(t, b.even("A", "B"), "one has no owner")
	assert.Equal(t, []string{"1", "2"}, b.of("A"))

	b.see(seen("A..B", 1, 1, 2, 2))
	assert.Equal(t, "A 1  B 1  C 0  nobody 2   moves 0   highest term 0.2", b.summary(strings.Clone))
	b.see(seen("AABB", 1, 2, 3, 2))
	assert.Equal(t, "A 2  B 2  C 0  nobody 0   moves 0   highest term 0.3", b.summary(strings.Clone), "they are where they were")
	assert.True(t, b.even("A", "B"))
	assert.False(t, b.even("A", "B", "C"))
	b.see(seen("ACBB", 1, 3, 3, 2))
	assert.Equal(t, "A 1  B 2  C 1  nobody 0   moves 1   highest term 0.3", b.summary(strings.Clone))
	assert.True(t, b.even("A", "B", "C"))
}

func TestABoardDrawsOneCellForEachTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard([]string{"1", "2", "3", "4", "5"})
		plain := func(_, text string) string { return text }
		b.see(seen("AA.B.", 1, 1, 1, 1, 1))
		assert.Equal(t, []string{"aa·", "b·"}, b.rows(3, plain))
		time.Sleep(fresh)
		b.see(seen("AB.B.", 1, 2, 1, 1, 1))
		assert.Equal(t, []string{"Ab·", "B·"}, b.rows(3, plain), "what is new is small")
		marked := b.rows(5, func(colour, text string) string { return "<" + colour + ">" + text })
		assert.Equal(t, []string{"<30;46>A<30;43>b·<30;43>B·"}, marked)
	})
}
