package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestTenMigrationsAtATimeAllSucceed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	for range 3 {
		var wg sync.WaitGroup
		for range 10 {
			s := open(t, dsn, nil)
			wg.Go(func() { assert.NoError(t, s.Migrate(t.Context())) })
		}
		wg.Wait()
		assert.Equal(t, 1, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
		j.exec("DROP SCHEMA pglatch_lease CASCADE")
	}
}

func TestTheSchemaCanBeRunAgainAndKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	j.exec(postgres.Schema())
	s := newStore(t, dsn)
	l := acquire(t, s, "x", "h")
	j.exec(postgres.Schema())
	j.exec("UPDATE pglatch_lease.store SET schema_version = 0")
	require.NoError(t, s.Migrate(t.Context()))
	assert.Equal(t, 1, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	require.NoError(t, s.Release(t.Context(), l.Claim))
	assert.Equal(t, l.Token+1, cycle(t, s, "x"))
}

func TestALaterSchemaStaysAsItIs(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.exec("UPDATE pglatch_lease.store SET schema_version = 9; DROP FUNCTION pglatch_lease.held()")
	require.NoError(t, s.Migrate(t.Context()))
	_, err := j.pool.Exec(t.Context(), postgres.Schema())
	require.ErrorContains(t, err, "the schema pglatch_lease has version 9, and this SQL makes version 1: nothing was changed")
	assert.Equal(t, 9, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	assert.True(t, one[bool](j, "SELECT to_regproc('pglatch_lease.held') IS NULL"), "the functions are the later version's")
}
