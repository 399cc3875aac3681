package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestAStoreWithoutItsTableSaysHowToMakeIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	s, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(t, err)
	_, err = newRunner(t, once.Config{Store: s}).Do(t.Context(), "report", thisMinute(), nothing)
	require.ErrorIs(t, err, once.ErrNotReady)
	require.ErrorContains(t, err, "Store.Migrate")
	_, err = s.Look(t.Context(), "report", thisMinute(), thisMinute())
	require.ErrorIs(t, err, once.ErrNotReady)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = postgres.DoTx(t.Context(), tx, "report", thisMinute(), nothing)
	require.ErrorIs(t, err, once.ErrNotReady)
	require.NoError(t, tx.Rollback(t.Context()))

	dbtest.Exec(t, pool, "CREATE ROLE once_plain; GRANT once_plain TO CURRENT_USER")
	t.Cleanup(func() { dbtest.Exec(t, pool, "DROP OWNED BY once_plain; DROP ROLE once_plain") })
	dbtest.Exec(t, pool, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	plain, err := postgres.New(postgres.Config{DSN: strings.Replace(dsn, "?", "?options=-c%20role%3Donce_plain&", 1), CreateTable: true})
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	_, err = newRunner(t, once.Config{Store: plain}).Do(t.Context(), "report", thisMinute(), nothing)
	require.ErrorIs(t, err, once.ErrNotReady)
	require.ErrorContains(t, err, "may not create")
	dbtest.Exec(t, pool, postgres.Schema(""))
	_, err = newRunner(t, once.Config{Store: plain}).Do(t.Context(), "report", thisMinute(), nothing)
	require.ErrorContains(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE")
	dbtest.Exec(t, pool, "GRANT SELECT, INSERT, UPDATE, DELETE ON pglatch_once TO once_plain")
	result, err := newRunner(t, once.Config{Store: plain}).Do(t.Context(), "report", thisMinute(), nothing)
	require.NoError(t, err)
	assert.True(t, result.Did)
}

func TestARoleWithoutRightsOnATableThatIsThereHearsOfGrants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	dbtest.Exec(t, pool, "CREATE ROLE once_guest; GRANT once_guest TO CURRENT_USER; CREATE SCHEMA jobs; "+postgres.Schema("jobs.ticks"))
	t.Cleanup(func() { dbtest.Exec(t, pool, "DROP OWNED BY once_guest; DROP ROLE once_guest") })
	guest, err := postgres.New(postgres.Config{DSN: strings.Replace(dsn, "?", "?options=-c%20role%3Donce_guest&", 1), Table: "jobs.ticks", CreateTable: true})
	require.NoError(t, err)
	t.Cleanup(guest.Close)
	for _, grant := range []string{"USAGE ON SCHEMA jobs", "SELECT, INSERT, UPDATE, DELETE ON jobs.ticks"} {
		_, err = newRunner(t, once.Config{Store: guest}).Do(t.Context(), "report", thisMinute(), nothing)
		require.ErrorIs(t, err, once.ErrNotReady)
		require.ErrorContains(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE ON jobs.ticks TO the role, and USAGE on its schema")
		require.NotContains(t, err.Error(), "create")
		dbtest.Exec(t, pool, "GRANT "+grant+" TO once_guest")
	}
	_, err = newRunner(t, once.Config{Store: guest}).Do(t.Context(), "report", thisMinute(), nothing)
	require.NoError(t, err, "the control")
}

func TestATableThatLacksAColumnIsRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	dbtest.Exec(t, pool, postgres.Schema("")+"; ALTER TABLE pglatch_once DROP COLUMN began")
	s, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, ofTx := postgres.DoTx(t.Context(), tx, "report", thisMinute(), nothing)
	require.NoError(t, tx.Rollback(t.Context()))
	_, ofRun := newRunner(t, once.Config{Store: s}).Do(t.Context(), "report", thisMinute(), nothing)
	_, ofLook := s.Look(t.Context(), "report", thisMinute(), thisMinute())
	for _, err := range []error{s.Migrate(t.Context()), ofTx, ofRun, ofLook} {
		require.ErrorIs(t, err, once.ErrNotReady)
		require.ErrorContains(t, err, "the table public.pglatch_once lacks a column that this version needs")
	}
}

func TestManyMakeTheTableAtOnceAndUseIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	dbtest.Exec(t, pool, "CREATE SCHEMA jobs")
	tick := thisMinute()
	var wg sync.WaitGroup
	for range 8 {
		s, err := postgres.New(postgres.Config{Pool: pool, Table: "jobs.ticks", CreateTable: true})
		require.NoError(t, err)
		r := newRunner(t, once.Config{Store: s})
		wg.Go(func() {
			_, err := r.Do(t.Context(), "report", tick, nothing)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, 1, dbtest.One[int](t, pool, "SELECT count(*) FROM jobs.ticks WHERE state = 'ran'"))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	result, err := postgres.Options{Table: "jobs.ticks"}.DoTx(t.Context(), tx, "report", tick, nothing)
	require.NoError(t, err)
	assert.Equal(t, once.Ran, result.State)
	require.NoError(t, tx.Rollback(t.Context()))
}

// Nothing is kept in a session, so that a run goes on though all of them end.
func TestARunOutlivesTheSessions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, pool := newStore(t, dsn), dbtest.Pool(t, dsn)
	renewed := func() (until time.Time) {
		return dbtest.One[time.Time](t, pool, "SELECT expires_at FROM pglatch_once")
	}
	result, err := newRunner(t, once.Config{Store: s, TTL: 10 * time.Second}).Do(t.Context(), "report", thisMinute(), func(ctx context.Context) error {
		for range 2 {
			_, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			require.NoError(t, err)
			before := renewed()
			await.Until(t, await.Soon, func() bool { return renewed().After(before) })
		}
		return ctx.Err()
	})
	require.NoError(t, err)
	assert.Equal(t, once.Ran, result.State)
}

func TestTicksThatNoWindowReachesAreForgotten(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, pool := newStore(t, dsn), dbtest.Pool(t, dsn)
	dbtest.Exec(t, pool, `INSERT INTO pglatch_once SELECT 'old', now() - interval '8 days' - i * interval '1 minute', 'ran', 'n', 'id', 1, now(), NULL, now()
		FROM generate_series(1, 250) AS i`)
	dbtest.Exec(t, pool, `INSERT INTO pglatch_once VALUES ('old', now() - interval '9 days', 'running', 'n', 'id', 1, now(), now() + interval '1 hour', NULL),
		('kept', now() - interval '7 days 12 hours', 'ran', 'n', 'id', 1, now(), NULL, now())`)
	_, err := newRunner(t, once.Config{Store: s}).Do(t.Context(), "report", thisMinute(), nothing)
	require.NoError(t, err)
	assert.Equal(t, 153, dbtest.One[int](t, pool, "SELECT count(*) FROM pglatch_once"), "a hundred by each run")
	removed, err := s.Sweep(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 150, removed)
	assert.Equal(t, 3, dbtest.One[int](t, pool, "SELECT count(*) FROM pglatch_once"), "what runs, what is young, and the tick")
}

func TestAWindowThatIsLongerThanWhatIsKeptIsRefused(t *testing.T) {
	t.Parallel()
	_, err := once.New(once.Config{Store: &postgres.Store{}, Window: postgres.Keeps + time.Second})
	require.ErrorIs(t, err, once.ErrInvalid)
	require.ErrorContains(t, err, "Config.Window")
	for _, c := range []postgres.Config{{}, {DSN: "postgres://localhost/x", Table: "a-b"}, {DSN: "::"}} {
		_, err := postgres.New(c)
		require.ErrorIs(t, err, once.ErrInvalid)
	}
}

const (
	rounds         = 15 // of ticks of several jobs; each round has jobs of its own
	mostStatements = 30 // different texts that the rounds may send
)

// Jobs, nodes and savepoints are no part of a statement's text.
func TestDifferentTicksAreNoDifferentStatements(t *testing.T) {
	t.Parallel()
	counter := statements.Start(t).Count(t)
	store := newStore(t, counter.DSN)
	config, err := pgx.ParseConfig(counter.DSN)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	own, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	pool := dbtest.Pool(t, counter.DSN)
	counter.Reset(t)

	for round := range rounds {
		job, tick := fmt.Sprint("job ", round), thisMinute()
		tx, err := own.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, did := range []bool{true, false} {
			result, err := postgres.DoSQLTx(t.Context(), tx, job, tick, func(ctx context.Context) error {
				_, err := postgres.DoSQLTx(ctx, tx, job+" inside", tick, func(context.Context) error { return errNoPaper })
				assert.ErrorIs(t, err, errNoPaper)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, did, result.Did)
		}
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(other pgx.Tx) error {
			result, err := postgres.DoTx(t.Context(), other, job, tick, nothing) // it waits for the first one
			assert.Equal(t, once.Running, result.State)
			return err
		}))
		require.NoError(t, tx.Commit())
		_, err = newRunner(t, once.Config{Store: store}).Do(t.Context(), job+" of a runner", thisMinute(), nothing)
		require.NoError(t, err)
	}

	require.NoError(t, own.Raw(func(driver any) error {
		assert.LessOrEqual(t, statements.Prepared(t, driver.(*stdlib.Conn).Conn()), 5, "in the caller's session")
		return nil
	}))
	if n, ok := counter.Entries(t); ok {
		require.Greater(t, n, 5, "they are counted")
		assert.LessOrEqual(t, n, mostStatements)
		t.Log("entries of pg_stat_statements:", n)
	}
	texts := counter.Texts(t)
	require.Greater(t, len(texts), 5, "the log was read")
	if !assert.LessOrEqual(t, len(texts), mostStatements) {
		for text, n := range texts {
			t.Log(n, text)
		}
	}
}
