package file_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// change rewrites one field of the record.
func change(t *testing.T, path, field, value string) {
	t.Helper()
	find := regexp.MustCompile(`"` + field + `": "[^"]*"`)
	text := content(t, path)
	require.True(t, find.MatchString(text))
	put(t, path, find.ReplaceAllString(text, `"`+field+`": "`+value+`"`))
}

func TestTheWallClockDecidesNothing(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	s.pass(time.Hour) // since the boot
	a, b := onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	for _, wrong := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		jumped := time.Now().Add(wrong).UTC().Format(time.RFC3339Nano)
		change(t, path, "renewTime", jumped)
		require.False(t, attempt(t, b, "b"), "renewed at %s", jumped)
		require.NoError(t, a.Renew(within(t), "a", ttl))
		change(t, path, "renewTime", jumped)
	}
	s.pass(ttl - 1)
	require.False(t, attempt(t, b, "b"))
	s.pass(1)
	lead(t, b, "b")

	// The control: the clock that counts does.
	change(t, path, "clockTime", "1s")
	lead(t, a, "a")
}

func TestALeaseEndsToTheNanosecondOnACommonClock(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	a, b, late := onClock(path, "shared", &s), onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	s.pass(ttl / 2)
	require.NoError(t, a.Renew(within(t), "a", 2*ttl))
	s.pass(2*ttl - 1)
	require.False(t, attempt(t, b, "b"))
	_, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	s.pass(1)
	_, ok, err = b.Leader(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	lead(t, late, "late") // which has never seen the record before
	require.Equal(t, term(2), late.Term())
}

// A reboot ends the clock, and another machine has another: nothing of the record
// can be compared.
func TestALeaseOfAnotherClockCountsFromTheFirstLook(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var before, after setting
	before.pass(1000 * time.Hour)
	after.pass(time.Second)
	a, b := onClock(path, "boot 1", &before), onClock(path, "boot 2", &after)
	lead(t, a, "a")
	require.False(t, attempt(t, b, "b"))
	after.pass(ttl - 1)
	require.False(t, attempt(t, b, "b"))
	require.NoError(t, a.Renew(within(t), "a", ttl))
	after.pass(1)
	require.False(t, attempt(t, b, "b"), "it was renewed")
	after.pass(ttl - 1)
	require.False(t, attempt(t, b, "b"))
	after.pass(1)
	require.NoError(t, b.Wait(within(t)))
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)

	// The control: by the number alone the new leader's lease would have ended.
	c := onClock(path, "boot 1", &before)
	require.False(t, attempt(t, c, "c"))
	change(t, path, "clock", "boot 1")
	lead(t, c, "c")
}

func TestALeaseFromTheFutureOfItsClockEnds(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	s.pass(time.Hour)
	a, b := onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	change(t, path, "clockTime", "9999h")
	require.False(t, attempt(t, b, "b"))
	s.pass(ttl)
	lead(t, b, "b")
}

func TestAHandWrittenLeaseCountsFromTheFirstLook(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	put(t, path, held("2026", "1999"))
	var s setting
	b := onClock(path, "shared", &s)
	require.False(t, attempt(t, b, "b"))
	s.pass(10*time.Second - 1)
	require.False(t, attempt(t, b, "b"))
	s.pass(1)
	lead(t, b, "b")
}

func TestALeaseThatHasEndedIsNotRenewedThoughNobodyTookIt(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	a, b := onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	s.pass(ttl)
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)
	s.pass(-ttl)
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost, "nor ever again")
	lead(t, a, "a")
	require.Equal(t, term(2), a.Term())
	require.False(t, a.CleanStart())

	s.pass(ttl)
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
	require.False(t, b.CleanStart(), "the release came too late to vouch for the end")
}

func TestTheProcessesOfABootShareAClock(t *testing.T) {
	t.Parallel()
	require.Equal(t, file.ClockID(), file.ClockID())
	require.NotContains(t, file.ClockID(), "alone")
}

// The process is stopped after its look at the lease, and wakes when others have seen
// the lease end.
func TestARenewalDuringWhichTheLeaseEndedIsALoss(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]time.Duration{"ended": ttl, "control: it had not": ttl - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			var s setting
			looks := -100
			a, b := file.NewBackend(path), onClock(path, "shared", &s)
			a.SetClock("shared", func() time.Duration {
				now := s.now()
				if looks++; looks == 3 { // of a renewal: the look, the draft, the look under the lock
					s.pass(stopped)
				}
				return now
			})
			lead(t, a, "a")
			looks = 0
			err := a.Renew(within(t), "a", ttl)
			if stopped < ttl {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, leader.ErrLost)
			require.ErrorContains(t, err, "while it was renewed")
			require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)
			require.NoError(t, a.Release(within(t), "a"))
			lead(t, b, "b")
			require.False(t, b.CleanStart())
		})
	}
}
