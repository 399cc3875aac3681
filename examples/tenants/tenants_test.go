package main

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	assert.Contains(t, output, "NOT TRUE: no row of an old term came after one of a new term")
	assert.Contains(t, output, "1 of 5 claims failed", "ownership was right all the same")
}

func TestTheTableShowsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), ledgerSchema)
	require.NoError(t, err)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	write := func(second int, tenant string, term int, node string) {
		_, err := pool.Exec(t.Context(), `INSERT INTO acts (tenant, term, node, at) VALUES ($1, $2, $3, $4)`, tenant, term, node, at(second))
		require.NoError(t, err)
	}
	judged := func(want judgement) {
		t.Helper()
		j, err := judge(t.Context(), pool)
		require.NoError(t, err)
		assert.Equal(t, want, j)
	}
	gapsOf := func(want []gap, since int, why string, tenants ...string) {
		t.Helper()
		found, err := gaps(t.Context(), pool, at(since), tenants)
		require.NoError(t, err)
		assert.Equal(t, want, found, why)
	}
	judged(judgement{})
	write(1, "x", 1, "A")
	write(1, "y", 1, "B")
	write(2, "x", 1, "A")
	write(7, "x", 2, "B")
	write(9, "y", 2, "A")
	judged(judgement{Rows: 5, Tenants: 2, Terms: 4})
	gapsOf([]gap{{"x", "B", 3 * time.Second}, {"y", "A", 5 * time.Second}}, 4, "from the fault on", "x", "y")
	gapsOf([]gap{{"x", "B", 5 * time.Second}}, 0, "from the last row on; a first term has no gap", "x")

	write(10, "x", 1, "A")
	judged(judgement{Rows: 6, Tenants: 2, Terms: 4, Stale: 1})
	write(11, "y", 2, "B")
	judged(judgement{Rows: 7, Tenants: 2, Terms: 4, Stale: 1, Shared: 1})
	write(12, "y", 3, "B")
	write(13, "x", 4, "B")
	write(14, "x", 3, "A")
	judged(judgement{Rows: 10, Tenants: 2, Terms: 7, Stale: 2, Shared: 1, Fallen: 1})
	gapsOf([]gap{{"x", "B", 3 * time.Second}}, 10, "a term that fell is none", "x")
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
