package postgres_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// version1 makes the schema of version 1, and leases in all states in it.
func version1(t *testing.T, j judge) {
	t.Helper()
	sql, err := os.ReadFile("testdata/version1.sql")
	require.NoError(t, err)
	j.exec(string(sql))
	for _, name := range []string{"held", "released", "expired", "taken over", "old"} {
		j.exec("SELECT pglatch_lease.acquire($1, 'a', 'id', 60000000, '', '{}', 0, 0, 0, '1s')", name)
	}
	j.exec("UPDATE pglatch_lease.locks SET released_at = clock_timestamp(), available_at = acquired_at WHERE name = 'released'")
	j.exec("UPDATE pglatch_lease.locks SET expires_at = clock_timestamp(), available_at = clock_timestamp() WHERE name IN ('expired', 'taken over')")
	j.exec("UPDATE pglatch_lease.locks SET released_at = 'yesterday', available_at = 'yesterday' WHERE name = 'old'")
	j.exec("SELECT pglatch_lease.acquire('taken over', 'b', 'id', 60000000, '', '{}', 0, 0, 0, '1s')")
}

func TestASchemaOfVersion1IsRefusedUntilItIsMigratedAndKeepsItsLeases(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	version1(t, j)
	j.exec("CREATE ROLE plain_lease; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease TO plain_lease; GRANT USAGE ON SCHEMA pglatch_lease TO plain_lease")
	t.Cleanup(func() { j.exec("DROP OWNED BY plain_lease CASCADE; DROP ROLE plain_lease") })
	held := lease.Claim{Name: "held", Holder: "a", ID: "id", Token: 1}
	s := open(t, dsn, nil)
	err := postgres.Guard(t.Context(), j.begin(), held)
	require.ErrorIs(t, err, lease.ErrNotReady, "it has no guard of this kind")
	require.ErrorContains(t, err, "Store.Migrate")

	require.NoError(t, s.Migrate(t.Context()))
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: held, TTL: ttl})
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(t.Context(), j.begin(), held))
	result, err := s.Sweep(t.Context(), lease.SweepRequest{})
	require.NoError(t, err)
	assert.Equal(t, lease.SweepResult{Held: 2, Expired: 2, Removed: 1}, result)
	result, err = s.Sweep(t.Context(), lease.SweepRequest{})
	require.NoError(t, err)
	assert.Equal(t, lease.SweepResult{Held: 2}, result)
	assert.Equal(t, uint64(2), cycle(t, s, "released"))

	// Programs of version 1 go on, and roles that had the tables have the new one too.
	j.exec("SELECT pglatch_lease.guard('held', 'a', 'id', 1)")
	plain := open(t, strings.Replace(dsn, "?", "?options=-c%20role%3Dplain_lease&", 1), nil)
	assert.Equal(t, uint64(3), cycle(t, plain, "released"))
	_, err = plain.Sweep(t.Context(), lease.SweepRequest{})
	require.NoError(t, err)
	j.exec(postgres.Schema()) // beside a guarded transaction
	result, err = s.Sweep(t.Context(), lease.SweepRequest{})
	require.NoError(t, err)
	assert.Equal(t, 2, result.Held, "the schema, run again, counts nothing twice")
}

func TestAMigrationWaitsForGuardedTransactionsOnlySoLong(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	version1(t, j)
	tx := j.begin()
	_, err := tx.Exec(t.Context(), "SELECT pglatch_lease.guard('held', 'a', 'id', 1)")
	require.NoError(t, err)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * time.Millisecond })
	require.ErrorIs(t, s.Migrate(t.Context()), lease.ErrBusy)
	assert.Equal(t, 1, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, s.Migrate(t.Context()))
}

func TestASchemaOfVersion2LearnsThatRenewalsChangeMetadata(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	j.exec(postgres.Schema())
	sql, err := os.ReadFile("testdata/version2.sql")
	require.NoError(t, err)
	j.exec(string(sql))
	j.exec("SELECT pglatch_lease.acquire('job', 'a', 'id', 60000000, '', '{}', 0, 0, 0, '1s')")
	held := lease.Claim{Name: "job", Holder: "a", ID: "id", Token: one[uint64](j, "SELECT token FROM pglatch_lease.locks")}
	s := open(t, dsn, nil)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: held, TTL: ttl})
	require.ErrorIs(t, err, lease.ErrNotReady)
	require.ErrorContains(t, err, "its version is 2, and 4 is needed")
	require.NoError(t, s.Migrate(t.Context()))
	label := map[string]string{"host": "b"}
	l, err := s.Renew(t.Context(), lease.RenewRequest{Claim: held, TTL: ttl, Metadata: label})
	require.NoError(t, err)
	assert.Equal(t, label, l.Metadata)

	// Programs of version 2 go on, and leave metadata as it is.
	j.exec("SELECT pglatch_lease.renew(ARRAY['job'], ARRAY['a'], ARRAY['id'], ARRAY[$1::bigint], ARRAY[60000000::bigint], '1s')", int64(held.Token))
	record, err := s.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, label, record.Metadata)
}

// Rights to execute can have been taken from everybody and given to some.
func TestASchemaOfVersion2KeepsWhoMayRenew(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	j.exec(postgres.Schema())
	sql, err := os.ReadFile("testdata/version2.sql")
	require.NoError(t, err)
	j.exec(string(sql))
	j.exec(`CREATE ROLE may_renew; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease TO may_renew;
		REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA pglatch_lease FROM PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pglatch_lease TO may_renew;
		GRANT USAGE ON SCHEMA pglatch_lease TO may_renew; CREATE ROLE may_not; GRANT USAGE ON SCHEMA pglatch_lease TO may_not;
		ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC`)
	t.Cleanup(func() {
		j.exec("ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC; DROP OWNED BY may_renew CASCADE; DROP OWNED BY may_not CASCADE; DROP ROLE may_renew; DROP ROLE may_not")
	})
	plain := open(t, strings.Replace(dsn, "?", "?options=-c%20role%3Dmay_renew&", 1), nil)
	j.exec("SELECT pglatch_lease.acquire('job', 'a', 'id', 60000000, '', '{}', 0, 0, 0, '1s')")
	held := lease.Claim{Name: "job", Holder: "a", ID: "id", Token: one[uint64](j, "SELECT token FROM pglatch_lease.locks")}
	require.NoError(t, open(t, dsn, nil).Migrate(t.Context()))
	_, err = plain.Renew(t.Context(), lease.RenewRequest{Claim: held, TTL: ttl})
	require.NoError(t, err, "a holder keeps its lease over the upgrade")
	const allowed = `SELECT has_function_privilege($1, p.oid, 'EXECUTE') FROM pg_proc AS p WHERE p.pronamespace = 'pglatch_lease'::regnamespace AND p.proname = 'renew'`
	assert.False(t, one[bool](j, allowed, "may_not"))
}
