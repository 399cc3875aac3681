package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestGuardsOfLeasesStandAllAttacks(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Guard{
		Open: openLeases, Ended: lease.ErrStale, ReadOnly: true, Elsewhere: "the schema pglatch_lease is not there", TTL: ttl,
	})
}

// leases are the leases of one name.
type leases struct {
	judge          judge
	name           string
	patient, hasty *postgres.Store
}

func openLeases(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	patient := open(tb, dsn, func(c *postgres.Config) { c.LockTimeout = patience })
	require.NoError(tb, patient.Migrate(tb.Context()))
	return &leases{newJudge(tb, dsn), guardtest.OddName + fmt.Sprint(number), patient, open(tb, dsn, func(c *postgres.Config) { c.LockTimeout = 1e6 })}
}

// take acquires the name, however often the store is busy.
func (s *leases) take(tb testing.TB, holder string) (l lease.Lease) {
	tb.Helper()
	await.Until(tb, patience, func() (ok bool) {
		var err error
		l, err = s.patient.Acquire(context.WithoutCancel(tb.Context()), lease.AcquireRequest{Name: s.name, Holder: holder, TTL: ttl})
		if !errors.Is(err, lease.ErrBusy) {
			require.NoError(tb, err)
		}
		return err == nil
	})
	return l
}

func (s *leases) Begin(tb testing.TB, holder string) guardtest.Right {
	tb.Helper()
	c := s.take(tb, holder).Claim
	renew := func(tb testing.TB) {
		tb.Helper()
		_, err := s.patient.Renew(tb.Context(), lease.RenewRequest{Claim: c, TTL: 2 * ttl})
		require.NoError(tb, err)
	}
	sweep := func(tb testing.TB) {
		tb.Helper()
		s.judge.expire(s.name)
		_, err := s.patient.Sweep(tb.Context(), lease.SweepRequest{})
		require.NoError(tb, err)
	}
	return guardtest.Right{
		Functions: guardtest.Functions{
			Guard:    func(ctx context.Context, tx postgres.PgxTx) error { return postgres.Guard(ctx, tx, c) },
			GuardSQL: func(ctx context.Context, tx postgres.SQLTx) error { return postgres.GuardSQL(ctx, tx, c) },
			InTx: func(ctx context.Context, pool postgres.Beginner, options pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
				return postgres.InTxOptions(ctx, pool, options, c, fn)
			},
			InSQLTx: func(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
				return postgres.InSQLTxOptions(ctx, db, options, c, fn)
			},
		},
		Outlives: map[string]func(testing.TB){
			"a renewal": renew,
			"a sweep that finds it renewed": func(tb testing.TB) {
				tb.Helper()
				renew(tb)
				s.judge.exec("UPDATE pglatch_lease.locks SET due_at = '-infinity' WHERE name = $1", s.name)
				_, err := s.patient.Sweep(tb.Context(), lease.SweepRequest{})
				require.NoError(tb, err)
			},
		},
		Ends: map[string]guardtest.End{
			"a release": {Do: func(tb testing.TB) {
				tb.Helper()
				require.NoError(tb, s.patient.Release(tb.Context(), c))
			}},
			"an expiry": {Do: func(testing.TB) { s.judge.expire(s.name) }, Errors: []error{lease.ErrExpired}},
			"an expiry after a renewal": {Do: func(tb testing.TB) {
				tb.Helper()
				renew(tb)
				s.judge.expire(s.name)
			}, Errors: []error{lease.ErrExpired}},
			"a hand-over that is released": {Do: func(tb testing.TB) {
				tb.Helper()
				next := lease.AcquireRequest{Name: s.name, Holder: "c", TTL: ttl}
				l, released, acquired := s.hasty.HandOver(tb.Context(), lease.ReleaseRequest{Claim: c}, next)
				require.NoError(tb, released)
				if acquired == nil {
					require.NoError(tb, s.patient.Release(tb.Context(), l.Claim))
				}
			}},
			"a release by force, in SQL": {Do: func(testing.TB) {
				s.judge.exec("UPDATE pglatch_lease.locks SET released_at = clock_timestamp(), available_at = '-infinity' WHERE name = $1", s.name)
			}},
			"a sweep that forgets it": {Do: sweep, Errors: []error{lease.ErrNotFound, lease.ErrExpired}},
			"a deletion": {Do: func(testing.TB) {
				_, err := s.judge.pool.Exec(context.Background(), "DELETE FROM pglatch_lease.locks WHERE name = $1", s.name)
				require.NoError(tb, err)
			}, Errors: []error{lease.ErrNotFound}, Waits: true},
		},
	}
}

func (s *leases) Blocked(tb testing.TB, holder string) {
	tb.Helper()
	for range 2 {
		_, err := s.hasty.Acquire(tb.Context(), lease.AcquireRequest{Name: s.name, Holder: holder, TTL: ttl})
		require.ErrorIs(tb, err, lease.ErrBusy, "somebody has the lease beside a guarded transaction")
	}
}
