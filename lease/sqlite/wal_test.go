package sqlite_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// A disk syncs when it is told to, or fails.
type disk struct {
	began, end chan struct{} // nil = at once
	syncs      atomic.Int64
	err        atomic.Pointer[error]
}

func (d *disk) sync(f *os.File) error {
	d.syncs.Add(1)
	if d.began != nil {
		d.began <- struct{}{}
		<-d.end
	}
	if err := d.err.Load(); err != nil {
		return *err
	}
	return f.Sync()
}

func openSyncing(t *testing.T, path string, cfg sqlite.Config, d *disk) *sqlite.Store {
	t.Helper()
	s, err := sqlite.OpenSyncing(t.Context(), path, cfg, d.sync)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestWhatChangesSomethingIsSyncedOnce(t *testing.T) {
	t.Parallel()
	for durability, each := range map[sqlite.Durability]int64{sqlite.Durable: 1, sqlite.Relaxed: 0} {
		var d disk
		s := openSyncing(t, newPath(t), sqlite.Config{Durability: durability}, &d)
		before := d.syncs.Load() // of opening
		l := acquire(t, s, "job")
		assert.Equal(t, before+each, d.syncs.Load(), durability)
		_, err := s.Acquire(t.Context(), request("job"))
		require.ErrorIs(t, err, lease.ErrHeld)
		assert.Equal(t, before+each, d.syncs.Load(), "a refusal changes nothing")
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Hour})
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), l.Claim))
		assert.Equal(t, before+3*each, d.syncs.Load(), durability)
	}
}

// Neither the answer nor what readers see may be lost any more.
func TestNobodyIsToldWhatIsNotSynced(t *testing.T) {
	t.Parallel()
	d := &disk{}
	path := newPath(t)
	s := openSyncing(t, path, sqlite.Config{}, d)
	d.began, d.end = make(chan struct{}), make(chan struct{})
	granted := make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.WithoutCancel(t.Context()), request("job"))
		granted <- err
	}()
	<-d.began
	seen := other(t, path)
	var n int
	require.NoError(t, seen.QueryRowContext(t.Context(), "SELECT count(*) FROM leases").Scan(&n))
	require.Equal(t, 1, n, "it is committed: another program sees it")

	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Get(impatient, "job")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, err := range s.List(impatient, lease.ListRequest{}) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Empty(t, granted)

	close(d.end)
	require.NoError(t, <-granted)
	_, err = s.Get(t.Context(), "job")
	require.NoError(t, err)
}

// A page whose sync failed counts as written: that a second sync succeeds proves nothing
// unless it was written again.
func TestASyncThatFailsSilencesTheStoreUntilAllIsWrittenAgain(t *testing.T) {
	t.Parallel()
	var d disk
	path := newPath(t)
	s := openSyncing(t, path, sqlite.Config{}, &d)
	kept := acquire(t, s, "kept")
	broken := errors.New("disk is broken")
	d.err.Store(&broken)
	_, err := s.Acquire(t.Context(), request("job"))
	require.ErrorIs(t, err, sqlite.ErrIO)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, s.Release(t.Context(), kept.Claim), sqlite.ErrIO)
	health := s.Health(t.Context())
	require.ErrorIs(t, health, sqlite.ErrIO)
	require.NotErrorIs(t, health, lease.ErrBroken)
	for _, name := range []string{"kept", "never"} {
		_, err = s.Get(t.Context(), name)
		require.ErrorIs(t, err, sqlite.ErrIO, "what a reader sees may not be on the disk, and a server is not ready")
	}
	for _, err := range s.List(t.Context(), lease.ListRequest{}) {
		require.ErrorIs(t, err, sqlite.ErrIO)
	}
	_, err = s.Sweep(t.Context(), lease.SweepRequest{})
	require.ErrorIs(t, err, sqlite.ErrIO)

	old := time.Unix(1, 0)
	require.NoError(t, os.Chtimes(path+"-wal", old, old))
	d.err.Store(nil)
	require.NoError(t, s.Health(t.Context()))
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	require.NotEqual(t, old, info.ModTime(), "nothing was written again")
	_, err = s.Get(t.Context(), "kept")
	require.NoError(t, err)
	later := acquire(t, s, "later")
	require.NoError(t, s.Close())

	d.err.Store(&broken)
	_, err = sqlite.OpenSyncing(t.Context(), path, sqlite.Config{}, d.sync)
	require.ErrorIs(t, err, sqlite.ErrIO)
	d.err.Store(nil)
	s = openSyncing(t, path, sqlite.Config{}, &d)
	require.NoError(t, s.Release(t.Context(), kept.Claim))
	require.NoError(t, s.Release(t.Context(), later.Claim))
}

// A file system may also show what the disk has, once a sync failed. Then SQLite's index of
// the WAL tells of pages that are not there, and a checkpoint would spoil the file.
func TestWhatTheSystemDroppedStopsTheStoreAndSpoilsNothing(t *testing.T) {
	t.Parallel()
	var d disk
	path := newPath(t)
	s := openSyncing(t, path, sqlite.Config{}, &d)
	kept := acquire(t, s, "kept")
	before, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	broken := errors.New("disk is broken")
	d.err.Store(&broken)
	_, err = s.Acquire(t.Context(), request("job"))
	require.ErrorIs(t, err, broken)
	d.err.Store(nil)
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	dropped := make([]byte, info.Size())
	copy(dropped, before)
	require.NoError(t, os.WriteFile(path+"-wal", dropped, 0o600))
	for range 2 {
		_, err = s.Acquire(t.Context(), request("next"))
		require.ErrorIs(t, err, sqlite.ErrIO)
		require.ErrorIs(t, err, lease.ErrBroken)
		require.ErrorIs(t, s.Health(t.Context()), lease.ErrBroken)
	}
	require.NoError(t, s.Close())
	refused(t, path, sqlite.ErrInUse)
	left, again := image(t, path), newPath(t)
	left.write(t, again) // as the next process finds it
	s = open(t, again, sqlite.Config{})
	require.NoError(t, s.Release(t.Context(), kept.Claim))
	require.Greater(t, acquire(t, s, "job").Token, kept.Token)
}
