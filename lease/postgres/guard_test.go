package postgres_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestARefusalSaysWhatBecameOfTheClaim(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	good := acquire(t, s, "current", "a").Claim
	stale := acquire(t, s, "stale", "a").Claim
	j.expire("stale")
	acquire(t, s, "stale", "b")
	released := acquire(t, s, "released", "a").Claim
	require.NoError(t, s.Release(t.Context(), released))
	expired := acquire(t, s, "expired", "a")
	j.expire("expired")
	oneOff := good
	oneOff.Token++
	for what, c := range map[string]struct {
		claim lease.Claim
		want  error
	}{
		"another has it":   {stale, &lease.StaleError{Name: "stale", Holder: true, ID: true, Token: true}},
		"another token":    {oneOff, &lease.StaleError{Name: "current", Token: true}},
		"it was released":  {released, &lease.StaleError{Name: "released", Released: true}},
		"it expired":       {expired.Claim, &lease.ExpiredError{Name: "expired", At: expired.ExpiresAt.Add(-48 * time.Hour)}},
		"nobody had it":    {lease.Claim{Name: "unknown", Holder: "a", ID: "x", Token: 1}, &lease.NotFoundError{Name: "unknown"}},
		"it is a good one": {good, nil},
	} {
		assert.Equal(t, c.want, postgres.Guard(t.Context(), j.begin(), c.claim), what)
	}
}

func TestATakeoverWaitsForGuardedWritesInFlight(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	dsn := server.DSN("")
	s, j := newStore(t, dsn), newJudge(t, dsn)
	hasty := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 20 * time.Millisecond })
	patient := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience })
	j.exec("CREATE TABLE report (written_by text)")
	a := acquire(t, s, "x", "a")
	tx := j.begin()
	require.NoError(t, postgres.Guard(t.Context(), tx, a.Claim))
	_, err := tx.Exec(t.Context(), "INSERT INTO report VALUES ('a')")
	require.NoError(t, err)

	// The lease can be renewed and released meanwhile, and a sweep leaves it.
	_, err = hasty.Renew(t.Context(), lease.RenewRequest{Claim: a.Claim, TTL: ttl})
	require.NoError(t, err)
	require.NoError(t, hasty.Release(t.Context(), a.Claim))
	result, err := hasty.Sweep(t.Context(), lease.SweepRequest{Retention: time.Nanosecond})
	require.NoError(t, err)
	assert.Zero(t, result)

	before, err := server.LogOffset()
	require.NoError(t, err)
	_, err = hasty.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "b", TTL: ttl})
	assert.Positive(t, requireAs[*lease.BusyError](t, err).Retry)
	log, err := server.LogSince(before)
	require.NoError(t, err)
	assert.Empty(t, log, "waiting writes nothing to the server's log")

	granted := make(chan int, 1)
	go func() {
		l, err := patient.Acquire(context.WithoutCancel(t.Context()), lease.AcquireRequest{Name: "x", Holder: "b", TTL: ttl})
		if assert.NoError(t, err) {
			assert.Greater(t, l.Token, a.Token)
		}
		granted <- one[int](j, "SELECT count(*) FROM report")
	}()
	j.rowWaiter()
	require.Empty(t, granted)
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, 1, <-granted, "b sees what a wrote")
	assert.IsType(t, &lease.StaleError{}, postgres.Guard(t.Context(), j.begin(), a.Claim))
}

func TestAGuardedWriteHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t) + "&pool_max_conns=16"
	migrated, j := newStore(t, dsn), newJudge(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * patience })
	var guarded []lease.Lease
	tx := j.begin()
	for i := range 8 { // more than statements at once
		l := acquire(t, migrated, "guarded"+strconv.Itoa(i), "a")
		require.NoError(t, postgres.Guard(t.Context(), tx, l.Claim))
		guarded = append(guarded, l)
	}
	var takeovers, others sync.WaitGroup
	for _, l := range guarded {
		require.NoError(t, s.Release(t.Context(), l.Claim), "a release does not wait for guarded writes")
		takeovers.Go(func() {
			_, err := s.Acquire(context.WithoutCancel(t.Context()), lease.AcquireRequest{Name: l.Name, Holder: "b", TTL: ttl})
			assert.NoError(t, err)
		})
	}
	j.eventually(func() bool {
		return one[int](j, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == len(guarded)
	})
	for i := range 40 { // some of which share statements
		others.Go(func() {
			_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: strconv.Itoa(i), Holder: "c", TTL: ttl})
			assert.NoError(t, err)
		})
	}
	others.Wait()
	require.NoError(t, tx.Commit(t.Context()))
	takeovers.Wait()
}

func TestAHandOverBesideGuardedWritesReleasesAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	migrated, j := newStore(t, dsn), newJudge(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * patience })
	a := acquire(t, migrated, "x", "a")
	tx := j.begin()
	require.NoError(t, postgres.Guard(t.Context(), tx, a.Claim))
	next := lease.AcquireRequest{Name: "x", Holder: "b", TTL: ttl}
	_, released, acquired := s.HandOver(t.Context(), lease.ReleaseRequest{Claim: a.Claim}, next)
	require.NoError(t, released)
	require.ErrorIs(t, acquired, lease.ErrBusy)
	require.NoError(t, tx.Commit(t.Context()))
	acquire(t, s, "x", "b")
}

// Renewals of many lock many rows, for longer than operations of several wait.
func TestHandOversBesideRenewalsAreNotLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	newStore(t, dsn)
	s, renewer := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience }), newStore(t, dsn)
	var all []lease.RenewRequest
	for i := range 200 {
		l := acquire(t, s, "x"+strconv.Itoa(i), "a")
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
	}
	stop := make(chan struct{})
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, err := renewer.RenewAll(t.Context(), all)
				assert.NoError(t, err)
			}
		}
	})
	for i := range 30 {
		_, released, acquired := s.HandOver(t.Context(), lease.ReleaseRequest{Claim: all[i].Claim}, lease.AcquireRequest{Name: all[i].Name, Holder: "b", TTL: ttl})
		assert.NoError(t, released)
		if acquired != nil {
			assert.ErrorIs(t, acquired, lease.ErrBusy, "never that the releaser has it")
		}
	}
	close(stop)
	renewals.Wait()
}

// idleInTransaction is the SQLSTATE of a session that was idle for longer than its guard allows.
const idleInTransaction = "25P03"

func TestAGuardBoundsHowLongItsSessionMayBeIdle(t *testing.T) {
	t.Parallel()
	s, j, _ := clockStore(t) // its clock stands still
	for name, c := range map[string]struct {
		ttl    time.Duration
		before string
		want   time.Duration
	}{
		"none":      {ttl, "0", ttl},
		"a longer":  {ttl, "1d", ttl},
		"a shorter": {ttl, "40s", 40 * time.Second},
		"at least":  {900 * time.Millisecond, "0", time.Second},
	} {
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "h", TTL: c.ttl})
		require.NoError(t, err)
		var ms int64
		for range 10 {
			tx := j.begin()
			_, err = tx.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+c.before+"'")
			require.NoError(t, err)
			require.NoError(t, postgres.Guard(t.Context(), tx, l.Claim))
			err = tx.QueryRow(t.Context(), "SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'").Scan(&ms)
			_ = tx.Rollback(t.Context())
			if sqlstate.Of(err) != idleInTransaction { // else this test was too slow for it
				break
			}
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.want, time.Duration(ms)*time.Millisecond, name)
	}
}
