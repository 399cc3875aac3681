package lease_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease"
)

func TestErrorsMatchTheirConditionAndSayWhatToKnow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		err  error
		is   error
		text string
	}{
		{&lease.HeldError{Name: "job", Holder: "a", Remaining: time.Second}, lease.ErrHeld, "lease: job is held by a for another 1s"},
		{&lease.HeldError{Name: "job", Remaining: time.Second}, lease.ErrHeld, "lease: job is kept for another 1s"},
		{&lease.StaleError{Name: "job", ID: true, Token: true}, lease.ErrStale, "lease: stale claim on job: id, token not the current one"},
		{&lease.StaleError{Name: "job", Released: true}, lease.ErrStale, "lease: stale claim on job: it was released"},
		{&lease.ExpiredError{Name: "job", At: at}, lease.ErrExpired, "lease: lease on job expired at 2026-01-02T03:04:05.000000006Z"},
		{&lease.NotFoundError{Name: "job"}, lease.ErrNotFound, "lease: nothing known of job"},
		{&lease.InvalidError{Field: "TTL", Value: "0s", Remedy: "use more"}, lease.ErrInvalid, "lease: TTL is 0s: use more"},
		{&lease.BusyError{Cause: errors.New("locked")}, lease.ErrBusy, "lease: store is busy: locked"},
	} {
		assert.ErrorIs(t, fmt.Errorf("wrapped: %w", c.err), c.is)
		assert.EqualError(t, c.err, c.text)
		for _, other := range []error{
			lease.ErrHeld, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrInvalid, lease.ErrBusy, lease.ErrNotReady, lease.ErrClosed,
		} {
			assert.Equal(t, other == c.is, errors.Is(c.err, other)) //nolint:errorlint // sentinels are compared
		}
	}
}

func TestStatesHaveNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"FREE", "HELD", "EXPIRED"}, []string{lease.Free.String(), lease.Held.String(), lease.Expired.String()})
	assert.Equal(t, "State(9)", lease.State(9).String())
}

// What a bad request is, leasetest says in full.
func TestInvalidErrorsAreShort(t *testing.T) {
	t.Parallel()
	err := lease.ValidateName(strings.Repeat("\xff", 1<<20))
	require.ErrorIs(t, err, lease.ErrInvalid)
	assert.Less(t, len(err.Error()), 500)
	assert.Contains(t, err.Error(), "1048576 bytes")
	require.NoError(t, lease.SweepRequest{Retention: math.MaxInt64}.Validate())
}

func TestANameHasNoSegmentsThatAURLResolves(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".", "..", "./a", "a/.", "a/./b", "a/../b", "../a", "/..", "../"} {
		require.ErrorIs(t, lease.ValidateName(name), lease.ErrInvalid, name)
	}
	for _, name := range []string{"...", ".a", "a.", "a..b", "..a/b..", "/", "//", "a/", "/a", `a\..`, "%2e", "․"} {
		require.NoError(t, lease.ValidateName(name), name)
	}
}

func FuzzValidateName(f *testing.F) {
	for _, name := range []string{"", "job", "a\x00", "\xff", "é", strings.Repeat("n", 513), "..", "a/./b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		claim := lease.Claim{Name: name, Holder: "a", ID: "x", Token: 1}
		want := lease.ValidateName(name)
		assert.Equal(t, want == nil, claim.Validate() == nil)
		if want == nil || name == "" {
			assert.NoError(t, lease.ListRequest{Prefix: name, After: name}.Validate())
		}
		if want == nil {
			assert.NotEmpty(t, name)
			assert.LessOrEqual(t, len(name), lease.MaxName)
			assert.NotContains(t, name, "\x00")
		}
	})
}

func TestTrustEndsBeforeTheLeaseHoweverLateTheAnswerWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := lease.Now()
		bubble.Sleep(3 * time.Second) // the answer is slow
		until := lease.Trust(sent, lease.Lease{Remaining: 10 * time.Second}, 0)
		assert.Equal(t, time.Now().Add(6*time.Second), until.Time())
		bubble.Sleep(6*time.Second - 1)
		assert.False(t, until.Passed())
		bubble.Sleep(time.Nanosecond)
		assert.True(t, until.Passed())
		assert.Zero(t, until.Remaining())
	})
}

func TestTrustGoesByWhatRemainedNotByTheWallClock(t *testing.T) {
	t.Parallel()
	l := lease.Lease{ExpiresAt: time.Now().Add(-24 * time.Hour), Remaining: time.Hour} // the store's clock is a day late
	for margin, want := range map[time.Duration]time.Duration{0: 54 * time.Minute, time.Minute: 59 * time.Minute, -1: time.Hour, 2 * time.Hour: 0} {
		got := lease.Trust(lease.Now(), l, margin).Remaining()
		assert.LessOrEqual(t, got, want)
		assert.GreaterOrEqual(t, got, want-time.Minute)
	}
}

func TestTrustEndsWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until := lease.Trust(lease.Now(), lease.Lease{Remaining: time.Hour}, -1)
		assert.False(t, until.Suspended(time.Minute).Passed(), "the control")
		assert.LessOrEqual(t, until.Suspended(time.Minute).Remaining(), 59*time.Minute)
		assert.True(t, until.Suspended(time.Hour).Passed())
		assert.Zero(t, until.Suspended(time.Hour).Remaining())
	})
}

func TestNothingIsTrustedByDefault(t *testing.T) {
	t.Parallel()
	assert.True(t, lease.Moment{}.Passed())
	assert.True(t, lease.Moment{}.Add(time.Hour).Passed())
	assert.True(t, lease.Trust(lease.Now(), lease.Lease{}, 0).Passed())
	assert.True(t, lease.Trust(lease.Moment{}, lease.Lease{Remaining: time.Hour}, 0).Passed())
}

func TestMain(m *testing.M) { leak.Main(m) }
