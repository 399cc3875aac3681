package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/demotest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// CI runs the demo itself, which checks its own claims: make demo-shards ONCE=1.
func TestAClaimFailsWhenWritesAreNotGuarded(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once", "-break")
	require.Equal(t, 1, code, output)
	assert.Contains(t, output, "NOT TRUE: each term is greater than those before it, and no row of an old term came after one of a new term")
	assert.Contains(t, output, "1 of 4 claims failed", "ownership was right all the same")
}

func TestTheTableShowsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(ledgerSchema)
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	write := func(second int, tenant string, term int, node string) {
		db.Exec(`INSERT INTO acts (at, tenant, term, node) VALUES ($1, $2, $3, $4)`, at(second), tenant, term, node)
	}
	judged := func(wantLate, wantShared int) {
		t.Helper()
		terms, _ := readTerms(db)
		late, shared := terms.Drain()
		assert.Equal(t, []int{wantLate, wantShared}, []int{len(late), len(shared)})
	}
	write(1, "x", 1, "A")
	write(1, "y", 1, "B")
	write(2, "x", 1, "A")
	write(7, "x", 2, "B")
	write(9, "y", 2, "A")
	judged(0, 0)
	assert.Equal(t, []gap{{"x", 3 * time.Second}, {"y", 5 * time.Second}}, gaps(db, at(4), []string{"x", "y"}), "from the fault on")
	assert.Equal(t, []gap{{"x", 5 * time.Second}}, gaps(db, at(0), []string{"x"}), "from the last row on; a first term has no gap")

	write(10, "x", 1, "A")
	judged(1, 0)
	write(11, "y", 2, "B")
	judged(1, 1)
	write(12, "x", 4, "B")
	write(13, "x", 3, "A")
	judged(2, 1)
}

func TestABoardHasTheTenantsOfEachNodeThatTakesPart(t *testing.T) {
	t.Parallel()
	var g shards.Group
	for _, identity := range []string{"A", "B", "C"} {
		g.Members = append(g.Members, shards.Member{Member: driver.Member{Identity: identity}})
	}
	g.Members[2].Away = true
	for i, owner := range []string{"A", "A", "B", ""} {
		g.Shards = append(g.Shards, shards.Seen{Name: string(rune('1' + i)), Owner: owner})
	}
	b := newBoard(g)
	assert.Equal(t, "A 2  B 1  nobody 1", b.String())
	assert.Equal(t, []string{"1", "2"}, b["A"])
	assert.False(t, b.even(4, "A", "B"), "one has no owner")
	g.Shards[3].Owner = "B"
	assert.True(t, newBoard(g).even(4, "A", "B"))
	assert.False(t, newBoard(g).even(4, "A", "B", "C"))
	assert.False(t, newBoard(g).even(4, "A"), "the others are of B")
	assert.False(t, board{"A": nil, "B": nil}.even(4, "A", "B"), "before the first look nobody has any")
	g.Members[2].Away = false
	assert.Equal(t, "A 2  B 2  C 0  nobody 0", newBoard(g).String())
}
