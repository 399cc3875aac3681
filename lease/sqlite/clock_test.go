package sqlite_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// The clock of a store shows the time at which it is used, however long opening took:
// else it would jump when the store is opened again, and end leases early.
func TestAClockThatStartedLateIsNotSlow(t *testing.T) {
	t.Parallel()
	slow := func(f *os.File) error {
		<-time.After(300 * time.Millisecond)
		return f.Sync()
	}
	s, err := sqlite.OpenOnVFS(t.Context(), newPath(t), sqlite.Config{}, "", slow)
	require.NoError(t, err)
	before := time.Now()
	l := acquire(t, s, "job")
	require.NoError(t, s.Close())
	require.False(t, l.AcquiredAt.Before(before.Add(-50*time.Millisecond)), "%v behind", before.Sub(l.AcquiredAt))
}

// A clock that was set back while the store was closed starts where it was. Without
// the time that is stored, which the control removes, an expired lease comes back.
func TestAClockThatWasSetBackRevivesNothing(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		path := newPath(t)
		noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		openAt := func(wall time.Time) *sqlite.Store {
			s, err := sqlite.OpenAt(t.Context(), path, sqlite.Config{}, wall)
			require.NoError(t, err)
			return s
		}
		s := openAt(noon)
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
		require.NoError(t, err)
		held := acquire(t, s, "held")
		require.NoError(t, s.Close())

		s = openAt(noon.Add(time.Hour - time.Minute))
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		require.ErrorIs(t, err, lease.ErrExpired, "this is seen, and nothing else is written")
		require.NoError(t, s.Close())

		if forgets {
			run(t, other(t, path), "UPDATE state SET seen_at = 0")
		}
		s = openAt(noon.Add(-24 * time.Hour))
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		if forgets {
			require.NoError(t, err, "the control sees no lease revived")
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorIs(t, err, lease.ErrExpired)
		r, err := s.Get(t.Context(), "held")
		require.NoError(t, err)
		require.Less(t, r.Remaining, 2*time.Minute, "a lease was prolonged")
		require.Equal(t, held.ExpiresAt, r.ExpiresAt)
		next := acquire(t, s, "job")
		require.Greater(t, next.Token, l.Token)
		require.NoError(t, s.Close())
	}
}

// Whoever read that a lease has expired does not find it current after the machine
// stopped and its clock was set back. The control: before anybody read it, it may be.
func TestALeaseThatSomebodyReadHasExpiredStaysSo(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	openAt := func(path string, wall time.Time) *sqlite.Store {
		s, err := sqlite.OpenAt(t.Context(), path, sqlite.Config{}, wall)
		require.NoError(t, err)
		return s
	}
	reopened := func(left files) lease.State {
		path := newPath(t)
		left.write(t, path)
		s := openAt(path, noon.Add(-time.Hour))
		r, err := s.Get(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return r.State
	}
	for name, read := range map[string]func(s *sqlite.Store) (lease.State, error){
		"Get": func(s *sqlite.Store) (lease.State, error) {
			r, err := s.Get(t.Context(), "job")
			return r.State, err
		},
		"List": func(s *sqlite.Store) (state lease.State, err error) {
			for r, failed := range s.List(t.Context(), lease.ListRequest{}) {
				state, err = r.State, failed
			}
			return state, err
		},
		"Acquire": func(s *sqlite.Store) (lease.State, error) {
			_, err := s.Acquire(t.Context(), request("job"))
			require.ErrorIs(t, err, lease.ErrHeld, "for the delay")
			return lease.Expired, nil
		},
	} {
		path := newPath(t)
		s := openAt(path, noon)
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute, LockDelay: 3 * time.Hour})
		require.NoError(t, err)
		left := image(t, path)
		require.NoError(t, s.Close())

		// Killed, for a store that is closed stores its time.
		path = newPath(t)
		left.write(t, path)
		s = openAt(path, noon.Add(30*time.Second))
		before := image(t, path)
		s.Advance(time.Hour)
		state, err := read(s)
		require.NoError(t, err)
		require.Equal(t, lease.Expired, state, name)
		after := image(t, path)
		transactions := s.Stats().Transactions
		for range 3 {
			_, err = s.Get(t.Context(), "job")
			require.NoError(t, err)
		}
		require.Equal(t, transactions, s.Stats().Transactions, "only the first costs one")
		require.NoError(t, s.Close())
		require.Equal(t, lease.Held, reopened(before), "the control sees no lease revived")
		require.Equal(t, lease.Expired, reopened(after), name)
	}
}
