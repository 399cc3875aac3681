//go:build linux

package electiontest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/pglatch/pglatch/leader"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A court hears acts a millisecond apart.
type court struct {
	*witness
	now time.Time
}

func newCourt() *court {
	return &court{&witness{changed: make(chan struct{}), fence: fence{over: make(map[author]bool)}}, time.Unix(1, 0)}
}

// hear lets a node act in a term; n = 0 is an act for the fence alone.
func (c *court) hear(node int, term, n uint64) {
	c.now = c.now.Add(time.Millisecond)
	c.see(decodeAct(act{node: node, pid: 100 + node, term: leader.Term{Era: 1, N: term}, n: n, looked: c.now}.encode(), c.now))
}

func TestAnActAfterThatOfALaterTermIsLate(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.hear(1, 1, 1)
	c.hear(2, 2, 1)
	c.hear(1, 1, 2)
	c.hear(2, 2, 2)
	acts, faulty := c.drain()
	assert.Empty(t, faulty)
	if assert.Len(t, acts, 1) {
		assert.Equal(t, 1, acts[0].node)
		assert.Equal(t, time.Millisecond, acts[0].by())
	}
	accepted, refused, stale := c.verdict()
	assert.Equal(t, []int{3, 1}, []int{accepted, refused})
	assert.Empty(t, stale)
}

func TestAnActInDefianceIsForTheFenceAlone(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.hear(1, 1, 1)
	c.hear(1, 1, 0) // nobody leads yet: it may
	c.hear(2, 2, 1)
	c.hear(1, 1, 0)
	acts, _ := c.drain()
	assert.Empty(t, acts)
	accepted, refused, stale := c.verdict()
	assert.Equal(t, []int{3, 1}, []int{accepted, refused})
	assert.Empty(t, stale)
}

func TestAFenceCannotTellLeadersOfOneTermApartAndItsJudgeCan(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.hear(1, 1, 1)
	c.hear(2, 1, 1)
	c.hear(1, 1, 2)
	_, faulty := c.drain()
	assert.NotEmpty(t, faulty)
	_, refused, stale := c.verdict()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestAnOpenFenceAcceptsWhatIsStale(t *testing.T) {
	t.Parallel()
	c := newCourt()
	c.openFence()
	c.hear(1, 1, 1)
	c.hear(2, 2, 1)
	c.hear(1, 1, 2)
	_, refused, stale := c.verdict()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestALogFindsEventsOutOfOrder(t *testing.T) {
	t.Parallel()
	for line, lines := range map[string][]string{
		"leads already":       {"acquired 1.1", "acquired 1.2"},
		"a term falls":        {"acquired 1.2", "released 1.2", "acquired 1.1"},
		"lost and never led":  {"lost 1.1 gone"},
		"stops while leading": {"acquired 1.1", "stopped <nil>"},
		"recovers twice":      {"acquired 1.1", "recovered 1.1"},
		"panics":              {"panic: BUG"},
		"counts nothing":      {"count refused"},
	} {
		l := newLog()
		for _, text := range lines {
			l.add(text)
		}
		assert.Len(t, l.faulty, 1, line)
	}
	l := newLog()
	for _, text := range []string{"follows", "error gone", "acquired 1.1", "recovered 1.2", "lost 1.2 gone", "count refused 2", "stopped <nil>"} {
		l.add(text)
	}
	assert.Empty(t, l.faulty)
	assert.Equal(t, 2, l.counts["refused"])
}
