package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// lookBesideAClaim returns what b sees while a's claim of the shard 1 waits for the lock 42, and the claim's error.
func lookBesideAClaim(t *testing.T, j judge, a, b driver.Session) (seen driver.View, failed error) {
	t.Helper()
	gate, err := j.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(42)")
	require.NoError(t, err)
	claimed := make(chan error, 1)
	go func() {
		_, err := a.Claim(context.WithoutCancel(t.Context()), []string{"1"})
		claimed <- err
	}()
	pid := postgres.PIDOf(a)
	for dbtest.Ask[int](j, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1", pid) == 0 && len(claimed) == 0 {
	}
	seen, err = b.Look(t.Context(), 0)
	require.NoError(t, err)
	require.NotContains(t, seen.Owners, "1")
	require.NoError(t, gate.Commit(context.WithoutCancel(t.Context())))
	return seen, <-claimed
}

// A look while a claim has its lock, and its row is not to be seen yet.
func TestAViewThatLacksAShardIsNotKept(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	j.Exec(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_catalog.set_config('lock_timeout', '0', true), pg_catalog.pg_advisory_xact_lock(42); RETURN new; END $$;
		CREATE TRIGGER wait BEFORE INSERT ON pglatch_shard FOR EACH ROW EXECUTE FUNCTION wait()`)
	var before driver.View
	for err := driver.ErrSlow; err != nil; { // on a busy machine a claim can be given up before the gate opens
		require.ErrorIs(t, err, driver.ErrSlow)
		before, err = lookBesideAClaim(t, j, a, b)
	}
	after, err := b.Look(t.Context(), before.Version)
	require.NoError(t, err)
	assert.Equal(t, "a", after.Owners["1"])
	again, err := b.Look(t.Context(), after.Version)
	require.NoError(t, err)
	assert.Equal(t, driver.View{Version: after.Version}, again, "the control: nothing has changed")
}

// A node loses what it owns with a permanent error of a look. Its role's rights are those of an application's role.
func TestALookFindsARightThatTheRoleLacks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.StartServer(t, pgserver.Options{}).DSN("")
	j := newJudge(t, dsn)
	j.Exec("CREATE ROLE app LOGIN")
	j.Exec(postgres.Schema(""))
	rights := []string{
		"SELECT ON pglatch_shard", "INSERT ON pglatch_shard", "UPDATE ON pglatch_shard", "SELECT ON pglatch_shard_order",
		"SELECT ON pglatch_shard_member", "INSERT ON pglatch_shard_member", "UPDATE ON pglatch_shard_member", "DELETE ON pglatch_shard_member",
	}
	for _, right := range rights {
		j.Exec("GRANT " + right + " TO app")
	}
	a := open(t, newBackend(t, pgtest.As(t, dsn, "app"), func(c *postgres.Config) { c.CreateTable = false }), "a")
	v, err := a.Look(t.Context(), 0)
	require.NoError(t, err)
	for _, right := range rights {
		j.Exec("REVOKE " + right + " FROM app")
		_, err := a.Look(t.Context(), v.Version) // nothing else has changed
		table, ok := errors.AsType[*postgres.TableError](err)
		require.True(t, ok, "%s: %v", right, err)
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorContains(t, table, "the role lacks rights on the tables of shards: GRANT SELECT")
		j.Exec("GRANT " + right + " TO app")
		_, err = a.Look(t.Context(), v.Version)
		require.NoError(t, err, right)
	}
	j.Exec("REVOKE INSERT ON pglatch_shard FROM app")
	j.Exec("GRANT INSERT (shards, name, key, era, n, timeline, system_identifier, server_start, written, pid, since) ON pglatch_shard TO app")
	_, err = a.Look(t.Context(), v.Version)
	require.NoError(t, err, "rights on columns are rights")
}

func TestAShardWhoseRowWasChangedByHandIsLost(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"another term": `UPDATE pglatch_shard SET n = n + 7 WHERE name = '1'`,
		"another era":  `UPDATE pglatch_shard SET era = era + 16 WHERE name = '1'`,
		"another key":  `UPDATE pglatch_shard SET key = 12345 WHERE name = '1'`,
		"another time": `UPDATE pglatch_shard SET since = since + interval '1 second' WHERE name = '1'`,
		"deleted":      `DELETE FROM pglatch_shard WHERE name = '1'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := newJudge(t, dsn)
			backend := newBackend(t, dsn, nil)
			a, b := open(t, backend, "a"), open(t, backend, "a")
			claim(t, b, "1", "2")
			look := func() (lost []string) {
				_, err := a.Look(t.Context(), 0)
				require.NoError(t, err)
				lost, err = b.Renew(t.Context(), ttl)
				require.NoError(t, err)
				return lost
			}
			require.Empty(t, look(), "the control")
			j.Exec(sql)
			require.Equal(t, []string{"1"}, look(), "by the look of the other session of the node")
			require.Equal(t, 2, j.locks(), "it has its lock until the node knows")
			require.Empty(t, look(), "it is reported once")
			require.Equal(t, 1, j.locks())
			assert.Contains(t, claim(t, a, "1"), "1")
			require.Empty(t, look())
		})
	}
}

func TestANodeWhoseTablesOrRightsAreGoneSaysSoAndStops(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	j.Exec(postgres.Schema(""))
	lost, acquired := make(chan error, 10), make(chan string, 10)
	node, err := shards.New(shards.Config{
		Name: "tenants", Count: 4, LeaseDuration: 30 * time.Second, LookInterval: 600 * time.Millisecond, Backend: newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable = false }),
		Callbacks: shards.Callbacks{OnLost: func(_ shards.Shard, err error) { lost <- err }, OnAcquired: func(s shards.Shard) { acquired <- s.Name }},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	for range 4 {
		<-acquired
	}
	j.Exec(`DROP TABLE pglatch_shard_order`)
	for range 4 {
		err := <-lost
		table, ok := errors.AsType[*postgres.TableError](err)
		require.True(t, ok, "%v", err)
		assert.True(t, table.Missing)
	}
	j.Exec(postgres.Schema(""))
	for range 4 {
		<-acquired
	}
	stop()
	require.NoError(t, <-done)
}

func TestAKeyThatWasEditedByHandHealsAtTheNextClaim(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	a := open(t, newBackend(t, dsn, nil), "a")
	claim(t, a, "1", "2")
	owners := func() map[string]string {
		view, err := a.Look(t.Context(), 0)
		require.NoError(t, err)
		return view.Owners
	}
	both := owners()
	require.Len(t, both, 2)

	j.Exec(`UPDATE pglatch_shard SET key = 12345 WHERE name = '1'`)
	require.NotContains(t, owners(), "1", "the control: no look knows whose the lock is")
	release(t, a, "1")
	require.Contains(t, claim(t, a, "1"), "1")
	assert.Equal(t, both, owners())

	// The key of another shard: a claim of that one is refused until this one is claimed.
	release(t, a, "1", "2")
	j.Exec(`UPDATE pglatch_shard SET key = 12345 WHERE name = '2'; UPDATE pglatch_shard SET key = (7::bigint << 32) + 2 WHERE name = '1'`)
	_, err := a.Claim(t.Context(), []string{"2"})
	var clash *postgres.ClashError
	require.ErrorAs(t, err, &clash)
	assert.Equal(t, "1", clash.Other)
	assert.Equal(t, 12345, dbtest.Ask[int](j, `SELECT key FROM pglatch_shard WHERE name = '2'`), "a clash changes nothing")
	claim(t, a, "1")
	claim(t, a, "2")
	assert.Equal(t, both, owners())
}
