//go:build linux

package electiontest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestALateOperationIsExcusedOnlyIfItsProcessPausedAfterALookInTime(t *testing.T) {
	t.Parallel()
	began := time.Unix(1, 0)
	late := func(looked, at time.Duration) judge.Late {
		return judge.Late{Operation: judge.Operation{Looked: began.Add(looked), At: began.Add(at)}, Successor: judge.Tenure{Began: began, After: "x"}, Nth: 1}
	}
	var c Cluster
	assert.True(t, c.excused(late(-time.Millisecond, time.Second)))
	assert.False(t, c.excused(late(-time.Millisecond, time.Millisecond)), "it did not pause")
	assert.False(t, c.excused(late(time.Millisecond, time.Second)), "somebody else led when it looked")
	c.setup.Faults = []Fault{{Name: "x", Notice: 5 * time.Millisecond}}
	assert.True(t, c.excused(late(time.Millisecond, 5*time.Millisecond)), "it had no notice yet")
	assert.False(t, c.excused(late(time.Millisecond, 6*time.Millisecond)))
	c.setup.Faults[0].Unnoticed = 1
	assert.True(t, c.excused(late(time.Millisecond, 6*time.Millisecond)))
}

func TestALogFindsLinesThatMustNotBe(t *testing.T) {
	t.Parallel()
	for line, lines := range map[string][]string{
		"leads already":   {"acquired 1.1", "acquired 1.2"},
		"another term":    {"acquired 1.1", "lost 1.2 gone"},
		"no term":         {"acquired x"},
		"panics":          {"panic: BUG"},
		"counts nothing":  {"count refused"},
		"lost, no leader": {"lost"},
	} {
		l := newLog()
		for _, text := range lines {
			l.add(text)
		}
		assert.Len(t, l.faulty, 1, line)
	}
	l := newLog()
	for _, text := range []string{"follows", "error gone", "acquired 1.1", "recovered 1.2", "lost 1.2 gone", "acquired 1.3", "released", "count refused 2", "stopped <nil>"} {
		l.add(text)
	}
	assert.Empty(t, l.faulty)
	assert.Equal(t, 2, l.counts["refused"])
}
