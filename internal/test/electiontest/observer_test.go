//go:build linux

package electiontest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A recorder observes operations a millisecond apart.
type recorder struct {
	*observer
	now time.Time
}

func newRecorder() *recorder {
	return &recorder{&observer{changed: make(chan struct{}), fence: fence{over: make(map[writer]bool)}}, time.Unix(1, 0)}
}

// record makes a node act in a term; n = 0 is an operation only for the fence.
func (r *recorder) record(node int, term, n uint64) {
	r.now = r.now.Add(time.Millisecond)
	r.see(decodeOperation(operation{node: node, pid: 100 + node, term: leader.Term{Era: 1, N: term}, n: n, looked: r.now}.encode(), r.now))
}

func TestAnActAfterThatOfALaterTermIsLate(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.record(1, 1, 1)
	r.record(2, 2, 1)
	r.record(1, 1, 2)
	r.record(2, 2, 2)
	operations, faulty := r.drain()
	assert.Empty(t, faulty)
	if assert.Len(t, operations, 1) {
		assert.Equal(t, 1, operations[0].node)
		assert.Equal(t, time.Millisecond, operations[0].by())
	}
	accepted, refused, stale := r.verdict()
	assert.Equal(t, []int{3, 1}, []int{accepted, refused})
	assert.Empty(t, stale)
}

func TestAnActInDefianceIsForTheFenceAlone(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.record(1, 1, 1)
	r.record(1, 1, 0) // no other node leads yet, so this is allowed
	r.record(2, 2, 1)
	r.record(1, 1, 0)
	operations, _ := r.drain()
	assert.Empty(t, operations)
	accepted, refused, stale := r.verdict()
	assert.Equal(t, []int{3, 1}, []int{accepted, refused})
	assert.Empty(t, stale)
}

func TestAFenceCannotTellLeadersOfOneTermApartAndItsJudgeCan(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.record(1, 1, 1)
	r.record(2, 1, 1)
	r.record(1, 1, 2)
	_, faulty := r.drain()
	assert.NotEmpty(t, faulty)
	_, refused, stale := r.verdict()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestAnOpenFenceAcceptsWhatIsStale(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	r.openFence()
	r.record(1, 1, 1)
	r.record(2, 2, 1)
	r.record(1, 1, 2)
	_, refused, stale := r.verdict()
	assert.Zero(t, refused)
	assert.Len(t, stale, 1)
}

func TestALateOperationIsExcusedOnlyIfItsProcessPausedAfterALookInTime(t *testing.T) {
	t.Parallel()
	began := time.Unix(1, 0)
	late := func(looked, at time.Duration) lateOperation {
		return lateOperation{operation{looked: began.Add(looked), at: began.Add(at)}, leadership{began: began}}
	}
	var c Cluster
	assert.True(t, c.excused(late(-time.Millisecond, time.Second)))
	assert.False(t, c.excused(late(-time.Millisecond, time.Millisecond)), "it did not pause")
	assert.False(t, c.excused(late(time.Millisecond, time.Second)), "somebody else led when it looked")
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
