package judge_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// hold is a hold of a key whose begin and end are known exactly.
func hold(who string, begin, end int64) judge.Hold {
	return judge.Hold{Key: "x", Who: who, Begin: judge.At(begin), End: judge.At(end)}
}

// between is a hold whose begin and end are known to lie between two times each.
func between(who string, asked, granted, ending, ended int64) judge.Hold {
	return judge.Hold{Key: "x", Who: who, Begin: judge.Moment{Earliest: asked, Latest: granted}, End: judge.Moment{Earliest: ending, Latest: ended}}
}

func alone(h judge.Hold) judge.Hold {
	h.Exclusive = true
	return h
}

func token(n uint64, h judge.Hold) judge.Hold {
	h.Token = n
	return h
}

func of(key string, h judge.Hold) judge.Hold {
	h.Key = key
	return h
}

func TestHoldsOneAfterTheOtherAreLegal(t *testing.T) {
	t.Parallel()
	for name, holds := range map[string][]judge.Hold{
		"none":                        {},
		"one after the other":         {hold("b", 10, 20), hold("a", 0, 10)},
		"two keys":                    {hold("a", 0, 10), of("y", hold("b", 5, 6))},
		"answers cross":               {between("a", 0, 3, 5, 12), between("b", 1, 11, 15, 16)},
		"a loss that nobody noticed":  {between("a", 0, 1, 0, 30), hold("b", 2, 20)},
		"two losses at one moment":    {between("a", 0, 5, 0, 30), between("b", 0, 5, 0, 30)},
		"a short hold in a gap":       {hold("a", 0, 10), hold("b", 10, 20), between("c", 2, 15, 2, 18)},
		"tokens rise":                 {token(1, hold("a", 0, 10)), token(5, hold("b", 11, 20))},
		"tokens of concurrent grants": {token(2, between("a", 0, 3, 0, 9)), token(1, between("b", 1, 2, 1, 9))},
	} {
		require.NoError(t, judge.Holds(holds, 1), name)
	}
	require.NoError(t, judge.Holds([]judge.Hold{hold("a", 0, 10), hold("b", 5, 15), alone(hold("w", 15, 20))}, 2))
}

func TestEachViolationByHoldsIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		slots int
		holds []judge.Hold
		says  string
	}{
		"two at once":                   {1, []judge.Hold{hold("a", 0, 10), hold("b", 9, 20)}, "is beside"},
		"one inside another":            {1, []judge.Hold{hold("a", 0, 10), hold("b", 3, 4)}, "is beside"},
		"a long one over two":           {1, []judge.Hold{hold("a", 0, 100), hold("b", 3, 4), hold("c", 50, 60)}, "is beside"},
		"surely at once":                {1, []judge.Hold{between("a", 0, 3, 8, 12), between("b", 1, 7, 15, 16)}, "is beside"},
		"no gap for a short hold":       {1, []judge.Hold{hold("a", 0, 10), between("c", 2, 8, 2, 18)}, "was there room"},
		"too many slots":                {2, []judge.Hold{hold("a", 0, 10), hold("b", 1, 10), hold("c", 2, 10)}, "is beside"},
		"a reader beside a writer":      {9, []judge.Hold{alone(hold("w", 0, 10)), hold("r", 5, 6)}, "is beside"},
		"a writer beside a reader":      {9, []judge.Hold{hold("r", 0, 10), alone(hold("w", 5, 6))}, "is beside"},
		"a short writer beside both":    {9, []judge.Hold{hold("r", 0, 10), alone(between("w", 2, 8, 2, 18))}, "was there room"},
		"a token repeats":               {1, []judge.Hold{token(5, hold("a", 0, 10)), token(5, hold("b", 11, 20))}, "comes after"},
		"a token falls":                 {1, []judge.Hold{token(5, hold("a", 0, 10)), token(4, hold("b", 11, 20))}, "comes after"},
		"a token falls after others":    {1, []judge.Hold{token(5, hold("a", 0, 1)), hold("b", 2, 3), token(4, hold("c", 5, 6))}, "comes after"},
		"a token of a key among others": {1, []judge.Hold{of("y", hold("a", 0, 10)), hold("a", 0, 10), hold("b", 1, 2)}, "is beside"},
	} {
		assert.ErrorContains(t, judge.Holds(c.holds, c.slots), c.says, name)
	}
}

// lock is a lock as porcupine knows it: an acquisition finds it free, and an end finds it held by the same hold.
var lock = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		if who, ends := input.(string)[1:], input.(string)[0] == '-'; ends {
			return state == who, ""
		}
		return state == "", input.(string)[1:]
	},
}

// TestHoldsAreLegalIfTheirHistoryIsLinearizable compares the checker with porcupine.
func TestHoldsAreLegalIfTheirHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	legal := 0
	const histories = 20_000
	for range histories {
		holds, history := randomHolds(random, 2+random.IntN(4))
		linearizable := porcupine.CheckOperations(lock, history)
		require.Equal(t, linearizable, judge.Holds(holds, 1) == nil, "%v", holds)
		if linearizable {
			legal++
		}
	}
	t.Logf("%d of %d histories are linearizable", legal, histories)
	require.Greater(t, legal, histories/20)
	require.Less(t, legal, histories*19/20)
}

// randomHolds returns n holds at times that all differ, and their history.
func randomHolds(random *rand.Rand, n int) (holds []judge.Hold, history []porcupine.Operation) {
	for i := range n {
		who := strconv.Itoa(i)
		start := 1 + random.Int64N(30)
		time := func(after int64) int64 { return after + 10*(1+random.Int64N(8)) }
		asked := 100*start + int64(i)
		granted := time(asked)
		ending := time(granted)
		if random.IntN(4) == 0 {
			ending = asked // it was lost at some time
		}
		ended := time(max(granted, ending))
		holds = append(holds, judge.Hold{
			Who: who, Begin: judge.Moment{Earliest: asked, Latest: granted}, End: judge.Moment{Earliest: ending, Latest: ended},
		})
		history = append(history,
			porcupine.Operation{Input: "+" + who, Call: asked, Return: granted},
			porcupine.Operation{Input: "-" + who, Call: ending, Return: ended})
	}
	return holds, history
}
