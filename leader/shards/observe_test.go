package shards_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/internal/plan"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// observed has members of these weights claim shards, and returns the store's observer.
func observed(t *testing.T, list uint64, owned map[string][]string) (*shardstest.Backend, map[string]driver.Session) {
	t.Helper()
	store := shardstest.NewStore()
	sessions := map[string]driver.Session{}
	for identity, names := range owned {
		s, err := store.Backend().Open(t.Context(), driver.Member{Identity: identity, Weight: 100, List: list}, time.Hour)
		require.NoError(t, err)
		grants, err := s.Claim(t.Context(), names)
		require.NoError(t, err)
		require.Len(t, grants, len(names))
		sessions[identity] = s
	}
	return store.Backend(), sessions
}

func TestAGroupHasItsMembersTheirPartsAndWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	b, sessions := observed(t, plan.NewShards([]string{"1", "2", "3", "4", "5"}).Digest, map[string][]string{"a": {"1", "2", "3", "5"}, "b": {"4"}})
	require.NoError(t, sessions["a"].Release(t.Context(), []string{"5"}))
	require.NoError(t, sessions["b"].Announce(t.Context(), driver.Member{Identity: "b", Weight: 400, List: plan.NewShards([]string{"1", "2", "3", "4", "5"}).Digest}))
	require.NoError(t, b.Pin(t.Context(), "4", "away"))
	require.NoError(t, b.Pin(t.Context(), "of no list", "b"))
	require.NoError(t, b.Drain(t.Context(), "gone", true))
	g, err := shards.Observe(t.Context(), b)
	require.NoError(t, err)
	require.True(t, g.Certain)
	assert.Equal(t, 4, g.Owned())
	assert.Equal(t, map[string]string{"4": "away", "of no list": "b"}, g.Pins)
	for i := range g.Members {
		g.Members[i].List = 0
	}
	assert.Equal(t, []shards.Member{
		{Member: driver.Member{Identity: "a", Weight: 100}, Owned: 3, Fair: 1},
		{Member: driver.Member{Identity: "away"}, Away: true},
		{Member: driver.Member{Identity: "b", Weight: 400}, Owned: 1, Fair: 4},
		{Member: driver.Member{Identity: "gone"}, Away: true, Drained: true},
	}, g.Members)
	first := driver.Term{N: 1}
	assert.Equal(t, []shards.Seen{
		{Name: "1", Owner: "a", Term: first},
		{Name: "2", Owner: "a", Term: first},
		{Name: "3", Owner: "a", Term: first},
		{Name: "4", Owner: "b", Term: first, Pin: "away"},
		{Name: "5", Term: first},
	}, g.Shards)
}

func TestWhoDrainsHasNoPartAndTheOthersHaveAll(t *testing.T) {
	t.Parallel()
	b, _ := observed(t, 7, map[string][]string{"a": {"1", "2"}, "b": {"3"}})
	require.NoError(t, b.Drain(t.Context(), "a", true))
	g, err := shards.Observe(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, g.Members, 2)
	assert.True(t, g.Members[0].Draining)
	assert.True(t, g.Members[0].Drained)
	assert.Zero(t, g.Members[0].Fair)
	assert.Equal(t, 3, g.Members[1].Fair)
}

func TestAShardThatIsInNoListAnyMoreIsNotMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list    []string
		certain bool
		shards  []string
	}{
		"all of the list is owned, another shard was once": {[]string{"1", "2"}, true, []string{"1", "2"}},
		"what was owned once is in the list":               {[]string{"1", "2", "old"}, true, []string{"1", "2", "old"}},
		"nobody owned one of the list yet":                 {[]string{"1", "2", "new"}, false, []string{"1", "2", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, sessions := observed(t, plan.NewShards(c.list).Digest, map[string][]string{"a": {"1", "2", "old"}})
			require.NoError(t, sessions["a"].Release(t.Context(), []string{"old"}))
			g, err := shards.Observe(t.Context(), b)
			require.NoError(t, err)
			var names []string
			for _, s := range g.Shards {
				names = append(names, s.Name)
			}
			assert.Equal(t, c.shards, names)
			assert.Equal(t, c.certain, g.Certain)
		})
	}
}

func TestMembersOfTwoListsHaveTheirPartsOfTheirOwnShards(t *testing.T) {
	t.Parallel()
	b, sessions := observed(t, 7, map[string][]string{"a": {"1", "2"}, "b": {"3"}, "c": {"4", "5", "6"}})
	require.NoError(t, sessions["c"].Announce(t.Context(), driver.Member{Identity: "c", Weight: 100, List: 8}))
	g, err := shards.Observe(t.Context(), b)
	require.NoError(t, err)
	assert.False(t, g.Certain)
	fair := map[string]int{}
	for _, m := range g.Members {
		fair[m.Identity] = m.Fair
	}
	assert.Equal(t, map[string]int{"a": 2, "b": 1, "c": 3}, fair)
}

func TestAGroupThatNobodyKnowsIsEmpty(t *testing.T) {
	t.Parallel()
	b := shardstest.NewStore().Backend()
	g, err := shards.Observe(t.Context(), b)
	require.NoError(t, err)
	assert.Empty(t, g.Members)
	assert.Empty(t, g.Shards)
	assert.False(t, g.Certain)
	b.SetUnavailable(errors.New("the network is down"))
	_, err = shards.Observe(t.Context(), b)
	require.ErrorContains(t, err, "the network is down")
}
