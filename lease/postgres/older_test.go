package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
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
