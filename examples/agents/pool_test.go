package agents_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestScenario_PoolConfiguration(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Replica: "a"})
	work, locks := int(a.WorkPool().Config().MaxConns), a.Locker().Stats().MaxConns
	assert.Equal(t, 15, work)
	assert.Equal(t, 10, locks)
	assert.Equal(t, 25, work+locks)

	for i := range locks {
		defer a.hold(int32(i + 1))()
	}
	_, err := a.Locker().With(advisory.Options{Wait: 1}).Acquire(t.Context(), key(99))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	for range work - 1 {
		conn, err := a.WorkPool().Acquire(t.Context())
		require.NoError(t, err, "the locks take no connection from the work")
		defer conn.Release()
	}
	assert.Equal(t, 25, ask[int](a, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'agents/a%'`))
}
