package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/guardtest"
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

func TestEachColumnOfATableWithALongNameHasItsFence(t *testing.T) {
	t.Parallel()
	j := newJudge(t, pgtest.DSN(t))
	table := strings.Repeat("é", 30)
	j.exec("CREATE TABLE " + table + " (first bigint, second bigint); INSERT INTO " + table + " VALUES (5, 5)")
	for _, column := range []string{"first", "second"} {
		j.exec(postgres.FenceTrigger(table, column))
	}
	for _, column := range []string{"first", "second"} {
		_, err := j.pool.Exec(t.Context(), "UPDATE "+table+" SET "+column+" = 4")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		assert.Equal(t, column, pgErr.ColumnName)
	}
}

func TestAFenceTriggerRefusesAnOlderToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ table, column string }{{"report", "token"}, {`Ops.Odd "one's $pglatch$`, `the "fence" %s`}} {
		j := newJudge(t, pgtest.DSN(t))
		j.exec(`CREATE SCHEMA "Ops"`)
		path := pgx.Identifier{c.table}
		if c.table != "report" {
			path = pgx.Identifier{"Ops", c.table[4:]}
		}
		table, column := path.Sanitize(), pgx.Identifier{c.column}.Sanitize()
		j.exec("CREATE TABLE " + table + " (id int PRIMARY KEY, body text, " + column + " bigint)")
		for range 2 {
			j.exec(postgres.FenceTrigger(c.table, c.column))
		}
		put := func(body string, token any) error {
			_, err := j.pool.Exec(t.Context(), "INSERT INTO "+table+" AS r VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body, "+
				column+" = excluded."+column, body, token)
			return err
		}
		require.NoError(t, put("before", nil))
		require.NoError(t, put("first", 7))
		require.NoError(t, put("same", 7))
		require.NoError(t, put("next", 9))
		for _, token := range []any{8, nil} {
			err := put("stale", token)
			var pgErr *pgconn.PgError
			require.True(t, errors.As(err, &pgErr), "%v", err)
			assert.Equal(t, postgres.FencedCode, pgErr.Code)
			assert.Equal(t, c.column, pgErr.ColumnName)
			assert.Contains(t, pgErr.Message, "has token 9, the write ")
		}
		assert.Equal(t, "next", one[string](j, "SELECT body FROM "+table))
	}
}
