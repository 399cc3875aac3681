package judge_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
)

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
