package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
)

// frozenTable is the table as the first version made it, and frozenRow what it wrote. Later versions share it with this one.
const (
	frozenTable = `CREATE TABLE public.pglatch_once (job text NOT NULL, tick timestamptz NOT NULL, state text NOT NULL, node text NOT NULL, id text NOT NULL,
		token bigint NOT NULL, began timestamptz NOT NULL, expires_at timestamptz, ended timestamptz, PRIMARY KEY (job, tick))`
	frozenRow = `INSERT INTO public.pglatch_once (job, tick, state, node, id, token, began, expires_at, ended)
		VALUES ($1, $2, $3, 'first', 'x', 7, now(), CASE WHEN $3 = 'running' THEN now() + interval '1 hour' END, CASE WHEN $3 IN ('ran', 'failed') THEN now() END)`
)

// A new version beside an old one, on one table.
func TestTicksOfTheFirstVersionAreRespectedInItsTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := newPool(t, dsn)
	exec(t, pool, frozenTable)
	tick := thisMinute()
	for state, want := range map[string]once.State{"running": once.Running, "ran": once.Ran, "failed": once.Failed} {
		exec(t, pool, frozenRow, state, tick, state)
		runner := newRunner(t, once.Config{Store: newStore(t, dsn), Node: "new"})
		result, err := runner.Do(t.Context(), state, tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, want, "first", uint64(7)}, []any{result.Did, result.State, result.Node, result.Token})
	}

	exec(t, pool, frozenRow, "open", tick, "open")
	result, err := newRunner(t, once.Config{Store: newStore(t, dsn), Node: "new"}).Do(t.Context(), "open", tick, nothing)
	require.NoError(t, err)
	assert.Equal(t, []any{true, once.Ran, uint64(8)}, []any{result.Did, result.State, result.Token}, "given back, and nobody else's")
	var row struct {
		state, node string
		token       int64
		ended       *time.Time
	}
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT state, node, token, ended FROM public.pglatch_once WHERE job = 'open' AND expires_at IS NULL").
		Scan(&row.state, &row.node, &row.token, &row.ended))
	assert.Equal(t, []any{"ran", "new", int64(8), true}, []any{row.state, row.node, row.token, row.ended != nil}, "as the first version reads it")
}
