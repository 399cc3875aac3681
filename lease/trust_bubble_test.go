package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
)

func TestTrustEndsBeforeTheLeaseHoweverLateTheAnswerWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := lease.Now()
		time.Sleep(3 * time.Second) // the answer is slow
		until := lease.Trust(sent, lease.Lease{Remaining: 10 * time.Second}, 0)
		assert.Equal(t, time.Now().Add(6*time.Second), until.Time())
		time.Sleep(6*time.Second - 1)
		assert.False(t, until.Passed())
		time.Sleep(time.Nanosecond)
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
