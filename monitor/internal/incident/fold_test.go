package incident_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

func TestADeadlockHasItsConsequences(t *testing.T) {
	t.Parallel()
	w := two()
	w.holds("b", 3, key(2, 8))
	w.answer("b").Waits[0].Holds = []namespace.Tag{key(2, 8)}
	w.waits("a", 4, key(2, 8), key(1, 7))
	w.looks().look(6 * time.Minute)
	v := w.has(incident.Deadlock)
	require.NotNil(t, v)
	assert.Equal(t, []string{"a", "b"}, v.Who)
	assert.Equal(t, 2, v.Waiters, "those of both keys")
	require.NotEmpty(t, v.Consequences)
	for _, c := range v.Consequences {
		assert.Equal(t, incident.HeldLong, c.Name)
	}
	assert.Nil(t, w.has(incident.HeldLong))
	assert.NotNil(t, two().look(6*time.Minute).has(incident.HeldLong), "control: without a deadlock it is a verdict of its own")
}
