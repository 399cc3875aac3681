package postgres_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

const traps = `
CREATE ROLE app LOGIN;
ALTER ROLE app SET statement_timeout = '250ms';
ALTER ROLE app SET idle_session_timeout = '250ms';
ALTER ROLE app SET lock_timeout = '10ms';
ALTER ROLE app SET default_transaction_read_only = on;
ALTER ROLE app SET standard_conforming_strings = off;
ALTER ROLE app SET synchronous_commit = off;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO app;
ALTER DATABASE postgres SET search_path = evil, pg_catalog;
CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 42';
CREATE FUNCTION evil.pg_try_advisory_lock(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION evil.pg_try_advisory_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION evil.no(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION evil.no(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR evil.= (FUNCTION = evil.no, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR evil.= (FUNCTION = evil.no, LEFTARG = bigint, RIGHTARG = bigint);
`

// The rights are those that Schema's comment names, and no more.
func TestDefaultsOfRoleAndDatabaseChangeNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	judge := newJudge(t, server.DSN(""))
	judge.Exec(traps)
	judge.Exec(`SET search_path = public; ` + postgres.Schema(""))
	judge.Exec(`GRANT SELECT, INSERT, UPDATE ON public.pglatch_shard TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON public.pglatch_shard_member TO app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON public.pglatch_shard_order TO app`)
	dsn := pgtest.As(t, server.DSN(""), "app")
	victim := newJudge(t, dsn)
	pid := 0
	judge.Until(func() bool { // the times of the role can end a connection, too
		return victim.Pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid) == nil
	})
	assert.Equal(t, 42, pid, "the control: the trap catches an ordinary client")
	for _, level := range []string{"serializable", "repeatable read"} {
		judge.Exec(`ALTER ROLE app SET default_transaction_isolation = '` + level + `'`)
		backend := newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable = false })
		a, b := open(t, backend, `a'\`), open(t, newBackend(t, dsn, nil), "b")
		text := `o'neil\ ` + level
		assert.Len(t, claim(t, a, "1", text), 2)
		assert.Empty(t, claim(t, b, "1", text))
		judge.Until(func() bool { return backend.Pin(t.Context(), "1", `a'\`) == nil }) // its connection has the times of the role
		v, err := b.Look(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"1": `a'\`, text: `a'\`}, v.Owners)
		assert.Equal(t, map[string]string{"1": `a'\`}, v.Pins)
		release(t, a, "1")
		again := claim(t, b, "1")
		require.Contains(t, again, "1")
		ctx := b.(driver.Binder).Bind(t.Context(), driver.Grant{Name: "1", Term: again["1"]})
		pool := newJudge(t, pgtest.As(t, server.DSN(""), "postgres")).Pool
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, postgres.Guard(ctx, tx), "with the path of the database, too")
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, a.Leave(t.Context()))
		require.NoError(t, b.Leave(t.Context()))
	}
}

func TestWhatNoLaterCallMendsIsPermanent(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	judge := newJudge(t, server.DSN(""))
	judge.Exec(`CREATE ROLE app LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	judge.Exec(postgres.Schema("terms"))
	judge.Exec(postgres.Schema("half"))
	judge.Exec(`GRANT SELECT, INSERT, UPDATE ON half TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON half_member TO app`)
	dsn := pgtest.As(t, server.DSN(""), "app")
	for name, row := range map[string]struct {
		dsn    string
		change func(*postgres.Config)
		says   string
	}{
		"no such database":    {server.DSN("nowhere"), nil, `database "nowhere" does not exist`},
		"no table":            {dsn, func(c *postgres.Config) { c.CreateTable = false }, "does not exist: create them with postgres.Schema"},
		"no right to create":  {dsn, nil, "the role may not create the table public.pglatch_shard"},
		"no schema":           {server.DSN(""), func(c *postgres.Config) { c.Table = "nowhere.terms" }, "the schema of the table nowhere.terms does not exist"},
		"no rights":           {dsn, func(c *postgres.Config) { c.Table = "terms" }, `GRANT SELECT, INSERT, UPDATE ON "public"."terms"`},
		"no right to look":    {dsn, func(c *postgres.Config) { c.Table = "half" }, `SELECT ON "public"."half_order"`},
		"a lease of a second": {server.DSN(""), func(c *postgres.Config) { c.Table = "terms" }, ""}, // the control
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, row.dsn, row.change)
			if row.says == "" {
				eventually(t, func() bool { // a quarter of the lease bounds what it waits for
					s, err := b.Open(t.Context(), member("a"), time.Second)
					return err == nil && s.Close() == nil
				}, "it opens")
				return
			}
			_, err := b.Open(t.Context(), member("a"), ttl)
			require.ErrorIs(t, err, leader.ErrPermanent)
			require.ErrorContains(t, err, row.says)
		})
	}
	err := newBackend(t, dsn, func(c *postgres.Config) { c.Table = "half" }).Pin(t.Context(), "1", "a")
	require.ErrorIs(t, err, leader.ErrPermanent)
	require.ErrorContains(t, err, "GRANT INSERT, UPDATE, DELETE")
}

func TestAStandbyIsRefusedUntilItIsPromotedAndTermsRise(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	a := open(t, newBackend(t, primary.DSN(""), nil), "a")
	before := claim(t, a, "1")["1"]
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	replica := newJudge(t, standby.DSN(""))
	replica.Until(func() bool { return dbtest.Ask[int64](replica, "SELECT n FROM pglatch_shard") == int64(before.N) })
	b := newBackend(t, standby.DSN(""), nil)
	_, err = b.Open(t.Context(), member("b"), ttl)
	require.ErrorIs(t, err, postgres.ErrStandby)
	require.NotErrorIs(t, err, leader.ErrPermanent, "it can be promoted")

	replica.Exec("SELECT pg_wal_replay_pause()")
	for range 5 {
		release(t, a, "1")
		before = claim(t, a, "1")["1"]
	}
	require.NoError(t, primary.Stop(t.Context(), pgserver.Immediate))
	replica.Exec("SELECT pg_wal_replay_resume()")
	require.True(t, dbtest.Ask[bool](replica, "SELECT pg_promote(wait => false)")) // a wait in the server would hold a snapshot
	replica.Until(func() bool { return !dbtest.Ask[bool](replica, "SELECT pg_is_in_recovery()") })
	after := claim(t, open(t, b, "b"), "1")["1"]
	assert.Equal(t, 1, after.Compare(before), "%v follows %v", after, before)
}

// numbers are the names of shards from first on.
func numbers(first, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(first + i)
	}
	return names
}

func TestTheLockTableIsNotFilledAndWhatIsOwnedStays(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}})
	judge := newJudge(t, server.DSN(""))
	a := open(t, newBackend(t, server.DSN(""), nil), "a")
	got := len(claim(t, a, numbers(0, 200)...))
	assert.Greater(t, got, 100)
	var err error
	for first := 1000; err == nil; first += 50 { // locks that others had for a moment leave room for a few more
		var more []driver.Grant
		more, err = a.Claim(t.Context(), numbers(first, 50))
		got += len(more)
	}
	assert.LessOrEqual(t, got, 150, "three quarters of 10 × 20")
	var budget *postgres.BudgetError
	require.ErrorAs(t, err, &budget)
	assert.Equal(t, int64(150), budget.Limit)
	assert.Equal(t, 50, budget.Wanted)
	require.ErrorIs(t, err, postgres.ErrLockTableFull)
	assert.Equal(t, got, judge.locks())

	// The control: without the limit the table fills up, and what the statement took is given back.
	b := open(t, newBackend(t, server.DSN(""), func(c *postgres.Config) { c.MaxLocks = 1 << 40 }), "b")
	kept := claim(t, b, "5000")
	err = driver.ErrSlow
	for errors.Is(err, driver.ErrSlow) {
		_, err = b.Claim(t.Context(), numbers(10_000, 20_000))
	}
	require.ErrorIs(t, err, postgres.ErrLockTableFull)
	require.ErrorContains(t, err, "max_locks_per_transaction")
	assert.Equal(t, got+len(kept), judge.locks())
	for _, s := range []driver.Session{a, b} {
		lost, err := s.Renew(t.Context(), ttl)
		require.NoError(t, err)
		assert.Empty(t, lost)
	}
	assert.Len(t, claim(t, b, "5001"), 1)
}

func TestAWrongConfigIsSaidByNew(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*postgres.Config){
		"Namespace": func(c *postgres.Config) { c.Namespace = namespace.Namespace{} },
		"Table":     func(c *postgres.Config) { c.Table = "a.b.c" },
		"MaxLocks":  func(c *postgres.Config) { c.MaxLocks = -1 },
		"DSN":       func(c *postgres.Config) { c.DSN = "" },
	} {
		config := postgres.Config{DSN: "postgres://localhost/shop", Namespace: tenants}
		change(&config)
		_, err := postgres.New(config)
		var wrong *leader.ConfigError
		require.ErrorAs(t, err, &wrong, field)
		assert.Equal(t, field, wrong.Field)
	}
}
