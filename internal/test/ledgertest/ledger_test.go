package ledgertest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachViolationByWritesIsFound(t *testing.T) {
	t.Parallel()
	l := New(t, pgtest.DSN(t))
	write := func(key string, term int, node string) {
		_, err := l.Pool.Exec(t.Context(), writeSQL, key, term, node)
		require.NoError(t, err)
	}
	announce := func(key string, term int) {
		_, err := l.Pool.Exec(t.Context(), announceSQL, key, term)
		require.NoError(t, err)
	}
	assert.Equal(t, verdict{}, l.judge(t))
	announce("x", 1)
	write("x", 1, "A")
	write("y", 1, "B")
	write("x", 1, "A")
	write("x", 2, "B")
	announce("x", 1)
	write("y", 2, "A")
	assert.Equal(t, verdict{Writes: 5, Terms: 4}, l.judge(t))
	write("x", 1, "A")
	assert.Equal(t, verdict{Writes: 6, Terms: 4, Stale: 1, Late: 1}, l.judge(t))
	write("y", 2, "B")
	assert.Equal(t, verdict{Writes: 7, Terms: 4, Stale: 1, Late: 1, Shared: 1}, l.judge(t))
	write("y", 3, "B")
	write("x", 4, "B")
	write("x", 3, "A")
	assert.Equal(t, verdict{Writes: 10, Terms: 7, Stale: 2, Late: 2, Shared: 1}, l.judge(t))
	assert.True(t, l.Illegal(t))
	announce("y", 5)
	write("y", 3, "B")
	assert.Equal(t, verdict{Writes: 11, Terms: 7, Stale: 3, Late: 2, Shared: 1}, l.judge(t), "a later term was announced")
}
