package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func request(ttl time.Duration) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: "a", TTL: ttl}
}

func acquire(t *testing.T, row rules.Row, now time.Time, r lease.AcquireRequest) rules.Row {
	t.Helper()
	next, l, err := rules.Acquire(row, 0, now, r, rules.NewID())
	require.NoError(t, err)
	require.Equal(t, next.Claim, l.Claim)
	return next
}

func TestATokenIsAboveTheRowAndTheFloor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ token, version, floor, next uint64 }{
		{0, 0, 0, 1}, {0, 0, 41, 42}, {7, 9, 0, 8}, {7, 9, 20, 21}, {30, 31, 20, 31},
	} {
		row := rules.Row{Claim: lease.Claim{Token: c.token}, Version: c.version, ReleasedAt: start}
		next, l, err := rules.Acquire(row, c.floor, start, request(time.Second), "id")
		require.NoError(t, err)
		assert.Equal(t, c.next, l.Token)
		assert.Greater(t, next.Version, max(c.version, c.floor))
	}
}

func TestTheProofOfAReleaseDependsOnEveryPart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]lease.ReleaseRequest)
	for _, r := range []lease.ReleaseRequest{
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "a", ID: "bcd", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "abcd", ID: "", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cde", Token: 1}, IdempotencyKey: "f"},
		{Claim: lease.Claim{Name: "job", Holder: "cd", ID: "ab", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "ef", Token: 1}, IdempotencyKey: "cd"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 2}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 256}, IdempotencyKey: "ef"},
	} {
		proof := rules.ReleaseProof(r)
		require.Equal(t, proof, rules.ReleaseProof(r))
		require.NotContains(t, seen, proof, "%+v and %+v", r, seen[proof])
		seen[proof] = r
		r.IdempotencyKey = ""
		require.Empty(t, rules.ReleaseProof(r))
	}
}

func TestTokensThatAreUsedUpAreAnError(t *testing.T) {
	t.Parallel()
	_, _, err := rules.Acquire(rules.Row{}, lease.MaxToken, start, request(time.Second), "id")
	require.Error(t, err)
	_, l, err := rules.Acquire(rules.Row{}, lease.MaxToken-1, start, request(time.Second), "id")
	require.NoError(t, err)
	require.EqualValues(t, lease.MaxToken, l.Token)
}

func TestALeaseHasExpiredAtTheMomentWhenItExpires(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	end := start.Add(time.Second)
	assert.Equal(t, lease.Held, row.State(end.Add(-1)))
	assert.Equal(t, lease.Expired, row.State(end))
	assert.Equal(t, time.Nanosecond, row.Record(end.Add(-1)).Remaining)
	assert.Zero(t, row.Record(end).Remaining)
	_, _, err := rules.Renew(row, end, lease.RenewRequest{Claim: row.Claim, TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrExpired)
	_, err = rules.Release(row, end, lease.ReleaseRequest{Claim: row.Claim})
	require.ErrorIs(t, err, lease.ErrExpired)
	_, err = rules.Release(row, end.Add(-1), lease.ReleaseRequest{Claim: row.Claim})
	require.NoError(t, err)
	_, _, err = rules.Acquire(row, 0, end.Add(-1), request(time.Second), "id")
	require.ErrorIs(t, err, lease.ErrHeld)
	_, _, err = rules.Acquire(row, 0, end, request(time.Second), "id")
	require.NoError(t, err)
}

func TestAnIdempotentAcquisitionChangesNothing(t *testing.T) {
	t.Parallel()
	r := request(time.Second)
	r.IdempotencyKey = "k"
	row := acquire(t, rules.Row{}, start, r)
	next, l, err := rules.Acquire(row, 99, start.Add(time.Millisecond), r, "id")
	require.NoError(t, err)
	require.Equal(t, row, next)
	require.Equal(t, row.Lease(start.Add(time.Millisecond)), l)
	require.Equal(t, time.Second-time.Millisecond, l.Remaining)
}

func TestARefusalReturnsTheRowAsItIs(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	next, _, err := rules.Acquire(row, 0, start, request(time.Second), "id")
	require.ErrorIs(t, err, lease.ErrHeld)
	require.Equal(t, row, next)
	stale := lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 9}
	next, _, err = rules.Renew(row, start, lease.RenewRequest{Claim: stale, TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrStale)
	require.Equal(t, row, next)
	next, err = rules.Release(row, start, lease.ReleaseRequest{Claim: stale})
	require.ErrorIs(t, err, lease.ErrStale)
	require.Equal(t, row, next)
}

func TestASweepCountsWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	now := start.Add(time.Second)
	row = acquire(t, row, now, request(time.Second))
	now = now.Add(time.Second)
	row = acquire(t, row, now, request(time.Second))
	s := rules.Sweep(row, now, time.Hour)
	require.Equal(t, 2, s.Expired)
	require.True(t, s.Changed)
	require.Equal(t, row.Version, s.Row.Version, "nothing of the lease has changed")
	s = rules.Sweep(s.Row, now.Add(time.Second), time.Hour)
	require.Equal(t, 1, s.Expired)
	require.Greater(t, s.Row.Version, row.Version)
	require.Equal(t, lease.Free, s.Row.State(now.Add(time.Second)))
	s = rules.Sweep(s.Row, now.Add(time.Hour+time.Second-1), time.Hour)
	require.False(t, s.Changed)
	require.False(t, s.Drop)
	s = rules.Sweep(s.Row, now.Add(time.Hour+time.Second), time.Hour)
	require.True(t, s.Drop)
	require.False(t, s.Changed)
}

func TestRetriesAreBoundedAndSpread(t *testing.T) {
	t.Parallel()
	for _, remaining := range []time.Duration{-time.Hour, 0, 1, time.Millisecond, 300 * time.Millisecond, time.Hour} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := rules.Retry(remaining)
			seen[d] = true
			require.GreaterOrEqual(t, d, 5*time.Millisecond)
			require.Less(t, d, max(min(remaining, time.Second), 10*time.Millisecond))
		}
		require.Greater(t, len(seen), 25)
	}
}

func TestIDsDiffer(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, rules.NewID(), rules.NewID())
}
