package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// setClock replaces the server's clock by one that stands where the test says.
func (j judge) setClock(at time.Time) {
	j.t.Helper()
	j.exec(`CREATE TABLE IF NOT EXISTS clock (at timestamptz);
		DELETE FROM clock; INSERT INTO clock VALUES ('` + at.Format(time.RFC3339Nano) + `');
		GRANT SELECT ON clock TO PUBLIC;
		CREATE OR REPLACE FUNCTION pglatch_lease.wall() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT at FROM public.clock'`)
}

// clockStore is a store whose server has a clock that the test sets.
func clockStore(t *testing.T) (s *postgres.Store, j judge, noon time.Time) {
	t.Helper()
	dsn := pgtest.DSN(t)
	s, j = newStore(t, dsn), newJudge(t, dsn)
	noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	j.setClock(noon)
	return s, j, noon
}

func (j judge) leaseOf(s *postgres.Store, name string, d time.Duration) lease.Lease {
	j.t.Helper()
	l, err := s.Acquire(j.t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: d})
	require.NoError(j.t, err)
	return l
}

func TestAClockThatIsSetBackProlongsALeaseByNoMoreThanTheStoreWasLeftAlone(t *testing.T) {
	t.Parallel()
	s, j, noon := clockStore(t)
	j.leaseOf(s, "x", 10*time.Second)
	next := lease.AcquireRequest{Name: "x", Holder: "b", TTL: ttl}
	remaining := func() time.Duration {
		t.Helper()
		_, err := s.Acquire(t.Context(), next)
		return requireAs[*lease.HeldError](t, err).Remaining
	}
	j.setClock(noon.Add(4 * time.Second))
	assert.Equal(t, 6*time.Second, remaining())
	j.setClock(noon.Add(4*time.Second - time.Hour))
	assert.Equal(t, 6*time.Second, remaining(), "time goes on from where it was last seen")
	j.setClock(noon.Add(9*time.Second - time.Hour))
	assert.Equal(t, time.Second, remaining(), "and at the pace of the clock")
	j.setClock(noon.Add(10*time.Second - time.Hour))
	l, err := s.Acquire(t.Context(), next)
	require.NoError(t, err)
	assert.Equal(t, noon.Add(10*time.Second), l.AcquiredAt)

	// Again and again: each time no more than the time since it was last asked, and a second.
	now := noon.Add(10 * time.Second)
	for i := range 20 {
		now = now.Add(time.Second)
		j.setClock(now.Add(-time.Duration(i+2) * time.Hour))
		require.LessOrEqual(t, remaining(), l.ExpiresAt.Sub(now)+time.Duration(2*(i+1))*time.Second)
	}
}

func TestALeaseThatWasToldExpiredNeverComesBackWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for how, tell := range map[string]func(t *testing.T, s *postgres.Store, j judge, c lease.Claim){
		"get": func(t *testing.T, s *postgres.Store, _ judge, c lease.Claim) {
			t.Helper()
			record, err := s.Get(ctx, c.Name)
			require.NoError(t, err)
			require.Equal(t, lease.Expired, record.State)
		},
		"list": func(t *testing.T, s *postgres.Store, _ judge, _ lease.Claim) {
			t.Helper()
			for record, err := range s.List(ctx, lease.ListRequest{}) {
				require.NoError(t, err)
				require.Equal(t, lease.Expired, record.State)
			}
		},
		"renew": func(t *testing.T, s *postgres.Store, _ judge, c lease.Claim) {
			t.Helper()
			_, err := s.Renew(ctx, lease.RenewRequest{Claim: c, TTL: ttl})
			require.ErrorIs(t, err, lease.ErrExpired)
		},
		"release": func(t *testing.T, s *postgres.Store, _ judge, c lease.Claim) {
			t.Helper()
			require.ErrorIs(t, s.Release(ctx, c), lease.ErrExpired)
		},
		"sweep": func(t *testing.T, s *postgres.Store, _ judge, _ lease.Claim) {
			t.Helper()
			result, err := s.Sweep(ctx, lease.SweepRequest{})
			require.NoError(t, err)
			require.Equal(t, 1, result.Expired)
		},
		"guard": func(t *testing.T, _ *postgres.Store, j judge, c lease.Claim) {
			t.Helper()
			require.ErrorIs(t, postgres.Guard(ctx, j.begin(), c), lease.ErrExpired)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, j, noon := clockStore(t)
			c := j.leaseOf(s, "x", 500*time.Millisecond).Claim // less than the mark may be behind
			j.setClock(noon.Add(500 * time.Millisecond))
			tell(t, s, j, c)
			for _, back := range []time.Duration{time.Microsecond, 200 * time.Millisecond, time.Hour} {
				j.setClock(noon.Add(500*time.Millisecond - back))
				_, err := s.Renew(ctx, lease.RenewRequest{Claim: c, TTL: ttl})
				require.ErrorIs(t, err, lease.ErrExpired, back)
				require.ErrorIs(t, s.Release(ctx, c), lease.ErrExpired)
				require.ErrorIs(t, postgres.Guard(ctx, j.begin(), c), lease.ErrExpired)
				record, err := s.Get(ctx, c.Name)
				require.NoError(t, err)
				require.NotEqual(t, lease.Held, record.State)
			}
			j.leaseOf(s, "x", ttl)
		})
	}
}

// A renewal in time that has not committed yet may still count.
func TestAnExpiryIsNotToldWhileARenewalThatWasInTimeIsInFlight(t *testing.T) {
	t.Parallel()
	s, j, noon := clockStore(t)
	c := j.leaseOf(s, "x", time.Second).Claim
	renewal := j.begin()
	_, err := renewal.Exec(t.Context(), "SELECT pglatch_lease.renew(ARRAY[$1], ARRAY[$2], ARRAY[$3], ARRAY[$4::bigint], ARRAY[60000000::bigint], '1s', NULL)", c.Name, c.Holder, c.ID, int64(c.Token))
	require.NoError(t, err)
	j.setClock(noon.Add(2 * time.Second))
	record, err := s.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, lease.Held, record.State)
	for _, level := range levels {
		j.exec("CREATE TABLE IF NOT EXISTS report (written_by text)")
		require.ErrorIs(t, j.guardOnce(level, c), lease.ErrBusy)
	}
	require.NoError(t, renewal.Commit(t.Context()))
	record, err = s.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, 58*time.Second, record.Remaining)
}

// A clock that was a year ahead by mistake ends leases early. Set right it changes nothing more.
func TestAClockThatWasAheadByMistakeLetsTimeGoOnWhenItIsSetRight(t *testing.T) {
	t.Parallel()
	s, j, noon := clockStore(t)
	j.leaseOf(s, "x", time.Minute)
	year := 365 * 24 * time.Hour
	j.setClock(noon.Add(year))
	l := j.leaseOf(s, "x", time.Minute)
	j.setClock(noon.Add(10 * time.Second))
	record, err := s.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, record.Remaining)
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
	require.NoError(t, err)
	j.setClock(noon.Add(40 * time.Second))
	record, err = s.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, record.Remaining)

	// The way out, when no lease is needed any more.
	require.NoError(t, s.Release(t.Context(), l.Claim))
	j.exec("SELECT setval('pglatch_lease.clock_shift', 0), setval('pglatch_lease.clock_mark', 0)")
	assert.Equal(t, noon.Add(40*time.Second), j.leaseOf(s, "y", ttl).AcquiredAt)
}
