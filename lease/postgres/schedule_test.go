package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// A schedule is two transactions of holder a, one of which is in flight while the lease
// passes on, and one that has its snapshot from before and comes late.
type schedule struct {
	judge
	store *postgres.Store // patient
	claim lease.Claim     // a's
	late  pgx.Tx
}

// newSchedule begins the late transaction at an isolation level, which it has a snapshot of.
func newSchedule(t *testing.T, j judge, s *postgres.Store, level pgx.TxIsoLevel, name string) *schedule {
	t.Helper()
	a := acquire(t, s, name, "a")
	return &schedule{j, s, a.Claim, j.beginAt(level)}
}

// beginAt begins a transaction that has its snapshot.
func (j judge) beginAt(level pgx.TxIsoLevel) pgx.Tx {
	j.t.Helper()
	tx, err := j.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: level})
	require.NoError(j.t, err)
	j.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(context.Background(), "SELECT count(*) FROM report")
	require.NoError(j.t, err)
	return tx
}

// waits runs what has to wait for a row, and returns when it does. The returned function
// waits for its end.
func (j judge) waits(what func() error) (end func()) {
	j.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- what() }()
	j.rowWaiter()
	return func() {
		j.t.Helper()
		require.NoError(j.t, <-ended)
	}
}

// take acquires for b, however often the store is busy.
func (s *schedule) take() error {
	for {
		_, err := s.store.Acquire(context.Background(), lease.AcquireRequest{Name: s.claim.Name, Holder: "b", TTL: ttl})
		if !errors.Is(err, lease.ErrBusy) {
			return err
		}
	}
}

// while does something that waits for a guarded transaction of a, and then ends that.
func (s *schedule) while(then func() error) {
	s.t.Helper()
	inFlight := s.begin()
	require.NoError(s.t, postgres.Guard(s.t.Context(), inFlight, s.claim))
	end := s.waits(then)
	require.NoError(s.t, inFlight.Commit(s.t.Context()))
	end()
}

// lateWrite is a guarded write in the late transaction: the guard's answer, and whether
// the write is there.
func (s *schedule) lateWrite() (guard error, written bool) {
	s.t.Helper()
	guard = postgres.Guard(s.t.Context(), s.late, s.claim)
	_, err := s.late.Exec(s.t.Context(), "INSERT INTO report VALUES ($1)", s.claim.Name)
	if err == nil {
		err = s.late.Commit(s.t.Context())
	}
	return guard, err == nil
}

// answers of a guard that comes late.
const (
	passes = "passes"
	stale  = "stale"
	absent = "not found"
	over   = "expired"
	retry  = "busy"
)

func answerOf(err error) string {
	if err == nil {
		return passes
	}
	for sentinel, name := range map[error]string{lease.ErrStale: stale, lease.ErrNotFound: absent, lease.ErrExpired: over, lease.ErrBusy: retry} {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return err.Error()
}

// schedules are what can become of a's lease between the snapshot and the guard of a
// transaction. The answers are in read committed, and above it.
var schedules = map[string]struct {
	run          func(t *testing.T, s *schedule)
	present, old string
}{
	"nothing": {func(*testing.T, *schedule) {}, passes, passes},
	"a renewal": {func(t *testing.T, s *schedule) {
		t.Helper()
		_, err := s.store.Renew(t.Context(), lease.RenewRequest{Claim: s.claim, TTL: 2 * ttl})
		require.NoError(t, err)
	}, passes, retry},
	"a's own release": {func(t *testing.T, s *schedule) {
		t.Helper()
		require.NoError(t, s.store.Release(t.Context(), s.claim))
	}, stale, retry},
	"an expiry": {func(_ *testing.T, s *schedule) { s.expire(s.claim.Name) }, over, retry},
	"acquire after a release": {func(t *testing.T, s *schedule) {
		t.Helper()
		require.NoError(t, s.store.Release(t.Context(), s.claim))
		require.NoError(t, s.take())
	}, stale, stale},
	"acquire after a release, waiting for a guard": {func(t *testing.T, s *schedule) {
		t.Helper()
		s.while(func() error {
			if err := s.store.Release(context.WithoutCancel(t.Context()), s.claim); err != nil {
				return err
			}
			return s.take()
		})
	}, stale, stale},
	"acquire after an expiry, waiting for a guard": {func(_ *testing.T, s *schedule) {
		s.while(func() error {
			s.expire(s.claim.Name)
			return s.take()
		})
	}, stale, stale},
	"acquire after a renewal and an expiry, waiting for a guard": {func(t *testing.T, s *schedule) {
		t.Helper()
		_, err := s.store.Renew(t.Context(), lease.RenewRequest{Claim: s.claim, TTL: 2 * ttl})
		require.NoError(t, err)
		s.while(func() error {
			s.expire(s.claim.Name)
			return s.take()
		})
	}, stale, stale},
	"a hand-over": {func(t *testing.T, s *schedule) {
		t.Helper()
		_, released, acquired := s.store.HandOver(t.Context(), s.claim, lease.AcquireRequest{Name: s.claim.Name, Holder: "b", TTL: ttl})
		require.NoError(t, errors.Join(released, acquired))
	}, stale, stale},
	"a release by force, in SQL, and acquire": {func(_ *testing.T, s *schedule) {
		s.exec("UPDATE pglatch_lease.locks SET released_at = clock_timestamp(), available_at = '-infinity' WHERE name = $1", s.claim.Name)
		require.NoError(s.t, s.take())
	}, stale, stale},
	"a token that somebody changed after a renewal, waiting for a guard": {func(t *testing.T, s *schedule) {
		t.Helper()
		_, err := s.store.Renew(t.Context(), lease.RenewRequest{Claim: s.claim, TTL: 2 * ttl})
		require.NoError(t, err)
		s.while(func() error {
			_, err := s.pool.Exec(context.Background(), `DO $$ BEGIN
				BEGIN PERFORM FROM pglatch_lease.locks WHERE name = '`+s.claim.Name+`' FOR UPDATE; EXCEPTION WHEN division_by_zero THEN NULL; END;
				UPDATE pglatch_lease.locks SET token = token + 1 WHERE name = '`+s.claim.Name+`'; END $$`)
			return err
		})
	}, stale, stale},
	"a sweep that marks it": {func(t *testing.T, s *schedule) {
		t.Helper()
		s.expire(s.claim.Name)
		_, err := s.store.Sweep(t.Context(), lease.SweepRequest{Retention: 100 * 24 * 60 * ttl})
		require.NoError(t, err)
	}, over, retry},
	"a sweep that finds it renewed": {func(t *testing.T, s *schedule) {
		t.Helper()
		_, err := s.store.Renew(t.Context(), lease.RenewRequest{Claim: s.claim, TTL: 2 * ttl})
		require.NoError(t, err)
		s.exec("UPDATE pglatch_lease.locks SET due_at = '-infinity' WHERE name = $1", s.claim.Name)
		_, err = s.store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.True(t, one[bool](s.judge, "SELECT due_at = expires_at FROM pglatch_lease.locks WHERE name = $1", s.claim.Name))
	}, passes, retry},
	"a sweep that forgets it": {func(t *testing.T, s *schedule) {
		t.Helper()
		s.expire(s.claim.Name)
		_, err := s.store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
	}, absent, stale},
	"a sweep that forgets it, and acquire": {func(t *testing.T, s *schedule) {
		t.Helper()
		s.expire(s.claim.Name)
		_, err := s.store.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.NoError(t, s.take())
	}, stale, stale},
	"a deletion, waiting for a guard, and acquire": {func(_ *testing.T, s *schedule) {
		s.while(func() error {
			_, err := s.pool.Exec(context.Background(), "DELETE FROM pglatch_lease.locks WHERE name = $1", s.claim.Name)
			return err
		})
		require.NoError(s.t, s.take())
	}, stale, stale},
}

func TestAGuardThatComesLateRefusesWhatIsNotTheCurrentLeaseInEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	newStore(t, dsn)
	newJudge(t, dsn).exec("CREATE TABLE report (written_by text)")
	for what, c := range schedules {
		for _, level := range levels { // one after the other: they wait for each other's waiters
			name := what + ", " + string(level)
			t.Run(name, func(t *testing.T) { // at whose end its connections close
				j := newJudge(t, dsn)
				s := newSchedule(t, j, open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience }), level, name)
				c.run(t, s)
				guard, written := s.lateWrite()
				want := c.old
				if level == pgx.ReadCommitted {
					want = c.present
				}
				assert.Equal(t, want, answerOf(guard), "%v", guard)
				assert.Equal(t, want == passes, written)
				assert.Equal(t, want == passes, one[int](j, "SELECT count(*) FROM report WHERE written_by = $1", name) == 1)
				if want == retry { // the whole transaction, tried again, hears the truth
					s.late = j.beginAt(level)
					guard, _ = s.lateWrite()
					assert.Equal(t, c.present, answerOf(guard), "tried again: %v", guard)
				}
			})
		}
	}
}

// Without the index a change of the token is none of a key where the row's lock was taken in a
// subtransaction, and the guard passes beside a later lease.
func TestTheSchedulesFindAGuardWithoutTheIndexOnTheToken(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	newStore(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience })
	j.exec("CREATE TABLE report (written_by text)")
	j.exec("DROP INDEX pglatch_lease.locks_token")
	j.unguardSnapshots()
	for _, level := range levels[1:] {
		c := newSchedule(t, j, s, level, string(level))
		schedules["a token that somebody changed after a renewal, waiting for a guard"].run(t, c)
		guard, written := c.lateWrite()
		require.NoError(t, guard)
		assert.True(t, written, "a stale write")
	}
}

// unguardSnapshots makes guards take for the present what their snapshot shows.
func (j judge) unguardSnapshots() {
	j.exec(`CREATE OR REPLACE FUNCTION pglatch_lease.guard_snapshot(p_name text, p_holder text, p_id text, p_token bigint) RETURNS bool
		LANGUAGE sql AS 'SELECT false'`)
}
