package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// version2 is a program with a schema that does not exist: names have a remark, and a function has another text.
var version2 = postgres.Next(`
ALTER TABLE pglatch_lease.locks ADD COLUMN IF NOT EXISTS remark text NOT NULL DEFAULT '';
CREATE OR REPLACE FUNCTION pglatch_lease.wall() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN pg_catalog.clock_timestamp(); END';
`)

// openNext returns a store of version 2.
func openNext(t *testing.T, config postgres.Config) *postgres.Store {
	t.Helper()
	s, err := version2.New(config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// A worker acquires a name, writes its token in a guarded transaction, renews and releases.
type worker struct {
	judge
	store *postgres.Store
	guard func(context.Context, postgres.PgxTx, lease.Claim) error
	turns atomic.Int32
}

// turn returns *lease.HeldError, *lease.BusyError or lease.ErrNotReady if the turn did not begin.
func (w *worker) turn(ctx context.Context) error {
	l, err := w.store.Acquire(ctx, lease.AcquireRequest{Name: "job", Holder: "worker", TTL: ttl})
	if err != nil {
		return err
	}
	err = again(func() error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if err := w.guard(ctx, tx, l.Claim); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO public.written (token) VALUES ($1)", int64(l.Token))
			return err
		})
	})
	assert.NoError(w.t, err)
	assert.NoError(w.t, again(func() error {
		_, err := w.store.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
		return err
	}))
	assert.NoError(w.t, again(func() error { return w.store.Release(ctx, l.Claim) }))
	w.turns.Add(1)
	return nil
}

// again repeats an operation while it is busy: a migration and the workers can wait for each other.
func again(f func() error) error {
	for {
		if err := f(); !errors.Is(err, lease.ErrBusy) {
			return err
		}
	}
}

func TestProcessesOfTwoVersionsShareLeasesWhileTheSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	j.exec(postgres.Schema())
	// The workers have the rights that they need, and no others; the migration keeps them.
	j.exec(`CREATE TABLE written (i serial, token bigint); CREATE ROLE worker_lease; GRANT ALL ON written, written_i_seq TO worker_lease;
		REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA pglatch_lease FROM PUBLIC; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pglatch_lease TO worker_lease;
		GRANT USAGE ON SCHEMA pglatch_lease TO worker_lease; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease TO worker_lease`)
	t.Cleanup(func() { j.exec("DROP OWNED BY worker_lease CASCADE; DROP ROLE worker_lease") })
	plain := strings.Replace(dsn, "?", "?options=-c%20role%3Dworker_lease&", 1)
	old := &worker{judge: newJudge(t, plain), store: open(t, plain, nil), guard: postgres.Guard}
	next := &worker{judge: newJudge(t, plain), store: openNext(t, postgres.Config{DSN: plain}), guard: version2.Guard}
	held := acquire(t, old.store, "held", "a").Claim
	err := version2.Guard(t.Context(), j.begin(), held)
	require.ErrorIs(t, err, lease.ErrNotReady)
	require.ErrorContains(t, err, "its version is 1, and 2 is needed")

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	var refused atomic.Int32
	for _, w := range []*worker{old, next} {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := w.turn(t.Context()); {
				case w == next && w.turns.Load() == 0 && errors.Is(err, lease.ErrNotReady):
					refused.Add(1)
				case errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrBusy):
				case !assert.NoError(w.t, err):
					return
				}
			}
		})
	}
	j.eventually(func() bool { return old.turns.Load() > 10 && refused.Load() > 10 })
	migrating := openNext(t, postgres.Config{DSN: dsn, LockTimeout: patience})
	require.NoError(t, again(func() error { return migrating.Migrate(t.Context()) }))
	assert.Equal(t, 2, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	before := old.turns.Load()
	j.eventually(func() bool { return old.turns.Load() > before+10 && next.turns.Load() > 10 })
	stop()
	wg.Wait()

	turns := int(old.turns.Load() + next.turns.Load())
	assert.Equal(t, turns, one[int](j, "SELECT count(*) FROM written"))
	assert.Equal(t, turns, one[int](j, "SELECT max(token) FROM written"), "no token was given twice, or left out")
	assert.True(t, one[bool](j, "SELECT array_agg(token ORDER BY i) = array_agg(token ORDER BY token) FROM written"), "tokens rise")
	require.NoError(t, postgres.Guard(t.Context(), j.begin(), held), "a lease outlasts the migration")
	require.NoError(t, version2.Guard(t.Context(), j.begin(), held))
	require.NoError(t, old.store.Migrate(t.Context()), "there is nothing to do")
	assert.Equal(t, 2, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	assert.False(t, one[bool](j, `SELECT EXISTS (SELECT FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
		WHERE p.pronamespace = 'pglatch_lease'::regnamespace AND a.grantee = 0)`), "who had no right has none")
}

func TestAMigrationWaitsForGuardedTransactionsOnlySoLong(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	tx := j.begin()
	require.NoError(t, postgres.Guard(t.Context(), tx, acquire(t, s, "held", "a").Claim))
	j.exec(postgres.Schema()) // the same version waits for none
	next := openNext(t, postgres.Config{DSN: dsn, LockTimeout: 10 * time.Millisecond})
	require.ErrorIs(t, next.Migrate(t.Context()), lease.ErrBusy)
	assert.Equal(t, 1, one[int](j, "SELECT schema_version FROM pglatch_lease.store"))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, next.Migrate(t.Context()))
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

// entries are all that a Store and the guards do with a schema.
func entries(t *testing.T, dsn string, j judge, c lease.Claim) map[string]func(*postgres.Store) error {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	next := lease.AcquireRequest{Name: c.Name, Holder: "b", TTL: ttl}
	renew := lease.RenewRequest{Claim: c, TTL: ttl}
	return map[string]func(*postgres.Store) error{
		"Guard": func(*postgres.Store) error { return postgres.Guard(ctx, j.begin(), c) },
		"GuardSQL": func(*postgres.Store) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			return postgres.GuardSQL(ctx, tx, c)
		},
		"Acquire": func(s *postgres.Store) error { _, err := s.Acquire(ctx, next); return err },
		"Renew":   func(s *postgres.Store) error { _, err := s.Renew(ctx, renew); return err },
		"RenewAll": func(s *postgres.Store) error {
			_, err := s.RenewAll(ctx, []lease.RenewRequest{renew, renew})
			return err
		},
		"Release": func(s *postgres.Store) error { return s.Release(ctx, c) },
		"HandOver": func(s *postgres.Store) error {
			_, err, _ := s.HandOver(ctx, lease.ReleaseRequest{Claim: c}, next)
			return err
		},
		"Get": func(s *postgres.Store) error { _, err := s.Get(ctx, c.Name); return err },
		"List": func(s *postgres.Store) error {
			for _, err := range s.List(ctx, lease.ListRequest{Limit: 1}) {
				return err
			}
			return nil
		},
		"Sweep":  func(s *postgres.Store) error { _, err := s.Sweep(ctx, lease.SweepRequest{}); return err },
		"Health": func(s *postgres.Store) error { return s.Health(ctx) },
		"Send":   func(s *postgres.Store) error { return s.Send(ctx, []string{"m"}) },
		"Listen": func(s *postgres.Store) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := s.Listen(ctx, cancel, nil); ctx.Err() == nil { // else it listens
				return err
			}
			return nil
		},
	}
}

func TestAnOlderSchemaIsRefusedByEveryEntry(t *testing.T) {
	t.Parallel()
	for version, refused := range map[int]bool{0: true, 1: false, 2: false} { // the controls: nothing is refused
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := newJudge(t, dsn)
			c := acquire(t, newStore(t, dsn), "job", "a").Claim
			j.exec("UPDATE pglatch_lease.store SET schema_version = $1", version)
			for name, entry := range entries(t, dsn, j, c) {
				err := entry(open(t, dsn, nil))
				if !refused {
					assert.NotErrorIs(t, err, lease.ErrNotReady, name)
					continue
				}
				require.ErrorIs(t, err, lease.ErrNotReady, name)
				require.ErrorContains(t, err, "its version is 0, and 1 is needed", name)
				require.ErrorContains(t, err, "Store.Migrate", name)
			}
		})
	}
}

// A schema without its row is as none.
func TestASchemaThatSaysNoVersionIsNotGuardedBy(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	c := acquire(t, s, "job", "a").Claim
	require.NoError(t, postgres.Guard(t.Context(), j.begin(), c))
	j.exec("DELETE FROM pglatch_lease.store")
	err := postgres.Guard(t.Context(), j.begin(), c)
	require.ErrorIs(t, err, lease.ErrNotReady)
	require.ErrorContains(t, err, "its version is unknown, and 1 is needed")
}

// The bodies of functions may change: a later version replaces them.
func TestTheSchemaOfLeasesIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema()))
}
