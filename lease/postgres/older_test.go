package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

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
		"Release":  func(s *postgres.Store) error { return s.Release(ctx, c) },
		"HandOver": func(s *postgres.Store) error { _, err, _ := s.HandOver(ctx, c, next); return err },
		"Get":      func(s *postgres.Store) error { _, err := s.Get(ctx, c.Name); return err },
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

// Each version mended what the one before got wrong, guards too: an older schema is refused,
// in whatever way it is met first.
func TestAnOlderSchemaIsRefusedByEveryEntry(t *testing.T) {
	t.Parallel()
	version2, err := os.ReadFile("testdata/version2.sql")
	require.NoError(t, err)
	for version, prepare := range map[int]func(judge){
		1: func(j judge) { version1(t, j) },
		2: func(j judge) { j.exec(postgres.Schema()); j.exec(string(version2)) },
		3: func(j judge) { j.exec(postgres.Schema()); j.exec("UPDATE pglatch_lease.store SET schema_version = 3") },
		4: func(j judge) { j.exec(postgres.Schema()) }, // the control: nothing is refused
	} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := newJudge(t, dsn)
			prepare(j)
			j.exec("SELECT pglatch_lease.acquire('job', 'a', 'id', 60000000, '', '{}', 0, 0, 0, '1s')")
			c := lease.Claim{Name: "job", Holder: "a", ID: "id", Token: one[uint64](j, "SELECT token FROM pglatch_lease.locks WHERE name = 'job'")}
			for name, entry := range entries(t, dsn, j, c) {
				err := entry(open(t, dsn, nil))
				if version == 4 {
					assert.NotErrorIs(t, err, lease.ErrNotReady, name)
					continue
				}
				require.ErrorIs(t, err, lease.ErrNotReady, name)
				require.ErrorContains(t, err, "Store.Migrate", name)
				if version > 1 { // 1 has no guard that could be asked
					require.ErrorContains(t, err, fmt.Sprintf("its version is %d, and 4 is needed", version), name)
				}
			}
			if version > 1 { // what the guard of a schema says that is not asked for its version
				tx := j.begin()
				_, err := tx.Exec(t.Context(), "SELECT pglatch_lease.guard('job', 'a', 'id', $1, 2)", int64(c.Token))
				assert.Equal(t, version < 4, err == nil, "%v", err) // of version 4, the loop above has released the lease
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
	require.ErrorContains(t, err, "its version is unknown, and 4 is needed")
}
