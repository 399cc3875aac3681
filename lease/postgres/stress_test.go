package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestNoGuardedWriteFollowsOneOfALaterTokenWhateverTheIsolationLevels(t *testing.T) {
	t.Parallel()
	writes, stale := stressGuards(t, func(judge) {}, 400)
	assert.Zero(t, stale, "of %d writes", writes)
}

// The control: until it has found some, for as long as it takes.
func TestTheStressFindsGuardsWithoutTheIndexOnTheToken(t *testing.T) {
	t.Parallel()
	_, stale := stressGuards(t, func(j judge) {
		j.exec("DROP INDEX pglatch_lease.locks_token")
		j.unguardSnapshots()
		j.unlockGuards()
	}, 100_000)
	assert.Positive(t, stale)
}

// stressGuards has clients take one lease from each other, by releases and expiries, each of which has guarded
// transactions of random isolation levels in flight, some with a snapshot from before,
// until enough have written or a write under a token followed one under a later token, for as long as it takes.
func stressGuards(t *testing.T, change func(judge), enough int64) (writes, stale int) {
	t.Helper()
	dsn := pgtest.DSN(t) + "&pool_max_conns=32"
	newStore(t, dsn)
	j := newJudge(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * time.Second })
	change(j)
	j.exec("CREATE TABLE report (n bigserial, token bigint)")
	count := func() int {
		return one[int](j, "SELECT count(*) FROM (SELECT token < max(token) OVER (ORDER BY n) AS stale FROM report) AS t WHERE stale")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var written atomic.Int64
	write := func(c lease.Claim, early bool, between func()) error {
		tx, err := j.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[rand.IntN(len(levels))]})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if early {
			if _, err := tx.Exec(ctx, "SELECT 1 FROM report LIMIT 1"); err != nil {
				return err
			}
		}
		between()
		if err := postgres.Guard(ctx, tx, c); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO report (token) VALUES ($1)", int64(c.Token)); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		written.Add(1)
		return nil
	}
	turn := func() error {
		r := lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl}
		expires := rand.IntN(8) == 0
		if expires {
			r.TTL = 20 * time.Millisecond
		}
		l, err := s.Acquire(ctx, r)
		if err != nil {
			return err
		}
		released := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 { // in order, late, and in between
			wg.Go(func() { _ = write(l.Claim, true, func() { <-released }) })
			wg.Go(func() { _ = write(l.Claim, false, func() {}) })
		}
		switch {
		case expires:
			<-time.After(r.TTL)
		case rand.IntN(2) == 0:
			_, err = s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
			fallthrough
		default:
			err = errors.Join(err, s.Release(ctx, l.Claim))
		}
		close(released)
		wg.Wait()
		return err
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil && written.Load() < enough {
				err := turn()
				if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrBusy) {
					assert.NoError(t, err)
					return
				}
				if enough > 1000 && count() > 0 {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	writes, stale = one[int](j, "SELECT count(*) FROM report"), count()
	if stale == 0 {
		require.GreaterOrEqual(t, writes, int(enough))
	}
	return writes, stale
}
