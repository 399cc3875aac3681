package judge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/leader/driver"
)

// seen has seen operations a millisecond apart: of a node, on a key, in a term, with a number. 0 is only for the fence.
func seen(terms *judge.Terms, operations ...[4]int) *judge.Terms {
	for i, op := range operations {
		at := time.Unix(1, 0).Add(time.Duration(i) * time.Millisecond)
		one := judge.Operation{Node: op[0], PID: 100 + op[0], Key: op[1], Term: driver.Term{Era: 1, N: uint64(op[2])}, N: uint64(op[3]), Looked: at}
		terms.See(judge.Decode(one.Encode(), at))
	}
	return terms
}

func TestAnOperationAfterThatOfALaterTermIsLate(t *testing.T) {
	t.Parallel()
	terms := seen(judge.NewTerms(), [4]int{1, 7, 1, 1}, [4]int{2, 7, 2, 1}, [4]int{1, 8, 1, 1}, [4]int{1, 7, 1, 2}, [4]int{2, 7, 2, 2})
	late, shared := terms.Drain()
	assert.Empty(t, shared)
	if assert.Len(t, late, 1) {
		assert.Equal(t, []int{1, 7, 1}, []int{late[0].Node, late[0].Key, late[0].Nth})
		assert.Equal(t, 2*time.Millisecond, late[0].By())
	}
	accepted, refused, stale := terms.Fenced()
	assert.Equal(t, []int{4, 1}, []int{accepted, refused})
	assert.Empty(t, stale)
	late, _ = terms.Drain()
	assert.Empty(t, late)
}

func TestATermThatDoesNotRiseIsLate(t *testing.T) {
	t.Parallel()
	late, _ := seen(judge.NewTerms(), [4]int{1, 7, 2, 1}, [4]int{2, 7, 1, 1}).Drain()
	assert.Len(t, late, 1)
}

func TestAnOperationInDefianceIsForTheFenceAlone(t *testing.T) {
	t.Parallel()
	terms := seen(judge.NewTerms(), [4]int{1, 0, 1, 1}, [4]int{1, 0, 1, 0}, [4]int{2, 0, 2, 1}, [4]int{1, 0, 1, 0})
	late, _ := terms.Drain()
	assert.Empty(t, late)
	accepted, refused, stale := terms.Fenced()
	assert.Equal(t, []int{3, 1}, []int{accepted, refused}, "before another node leads, it is allowed")
	assert.Empty(t, stale)
}

func TestAFenceCannotTellLeadersOfOneTermApartAndItsCheckerCan(t *testing.T) {
	t.Parallel()
	terms := seen(judge.NewTerms(), [4]int{1, 7, 1, 1}, [4]int{2, 8, 1, 1}, [4]int{2, 7, 1, 1}, [4]int{1, 7, 1, 2})
	_, shared := terms.Drain()
	assert.Len(t, shared, 1)
	_, refused, stale := terms.Fenced()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestAnOpenFenceAcceptsWhatIsStale(t *testing.T) {
	t.Parallel()
	terms := judge.NewTerms()
	terms.OpenFences()
	_, refused, stale := seen(terms, [4]int{1, 7, 1, 1}, [4]int{2, 7, 2, 1}, [4]int{1, 7, 1, 2}).Fenced()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestTenuresAreCountedByKey(t *testing.T) {
	t.Parallel()
	terms := seen(judge.NewTerms(), [4]int{1, 7, 1, 1}, [4]int{1, 7, 1, 4})
	terms.During("killed")
	seen(terms, [4]int{2, 8, 1, 1}, [4]int{2, 7, 2, 1})
	latest := terms.Latest()
	assert.Equal(t, "killed", latest[7].After)
	assert.Equal(t, driver.Term{Era: 1, N: 2}, latest[7].Term)
	assert.Len(t, terms.Since(time.Unix(1, 0)), 1)
	tenures, operations, lost := terms.Total()
	assert.Equal(t, []int{3, 4, 2}, []int{tenures, operations, lost})
}

func TestEventsOutOfOrderAreFound(t *testing.T) {
	t.Parallel()
	type event struct {
		name string
		term uint64
	}
	see := func(events []event) (wrong []string) {
		var judged judge.Events
		for _, e := range events {
			if text := judged.See(e.name, driver.Term{Era: 1, N: e.term}); text != "" {
				wrong = append(wrong, text)
			}
		}
		return wrong
	}
	assert.Empty(t, see([]event{
		{"follows", 0}, {"acquired", 1}, {"recovered", 2}, {"lost", 2}, {"acquired", 4}, {"released", 4}, {"stopped", 0}, {"acquired", 5},
	}))
	for what, events := range map[string][]event{
		"leads already":       {{"acquired", 1}, {"acquired", 2}},
		"a term falls":        {{"acquired", 2}, {"released", 2}, {"acquired", 1}},
		"a term repeats":      {{"acquired", 1}, {"recovered", 1}},
		"lost and never led":  {{"lost", 1}},
		"lost twice":          {{"acquired", 1}, {"lost", 1}, {"lost", 1}},
		"recovers after all":  {{"acquired", 1}, {"lost", 1}, {"recovered", 2}},
		"another term ends":   {{"acquired", 2}, {"released", 1}},
		"stops while leading": {{"Acquired", 1}, {"Stopped", 0}},
	} {
		assert.Len(t, see(events), 1, what)
	}
}
