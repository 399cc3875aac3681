package file_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestTheFileSaysWhoLeads(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	b := file.NewBackend(path)
	lead(t, b, "node-a")
	assert.Regexp(t, `^{
  "version": 1,
  "holder": "node-a",
  "renewTime": "20[-0-9T:.]+Z",
  "leaseDuration": "1m0s",
  "acquireTime": "20[-0-9T:.]+Z",
  "pid": \d+,
  "term": "1\.1",
  "incarnation": "[A-Z2-7]{26}-1",
  "clock": "[-0-9a-f]{36}",
  "clockTime": "[0-9hms.]+"
}
$`, content(t, path))
	require.NoError(t, b.Release(within(t), "node-a"))
	assert.Contains(t, content(t, path), `"holder": ""`)
	assert.Contains(t, content(t, path), `"term": "1.1"`)
	assert.Contains(t, content(t, path), `"released": true`)
	names, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.Equal(t, []string{path, path + ".lock", path + ".term"}, names)
}

func TestALeadershipThatWasClosedEndsByTheNextAttemptOrRelease(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)
	require.False(t, attempt(t, b, "b"))
	lead(t, a, "a")
	require.Equal(t, term(2), a.Term(), "another term, as nobody led between the next one")
	require.False(t, a.CleanStart())
	require.NoError(t, a.Close())
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
	require.False(t, b.CleanStart(), "what was closed did not end in good order")
}

func TestAStoppedWriterHoldsACallNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, stopped, b := file.NewBackend(path), file.NewBackend(path), file.NewBackend(path)
	a.SetPatience(patience)
	lead(t, a, "a")
	unlock, err := stopped.Lock(within(t))
	require.NoError(t, err)
	before := content(t, path)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return a.Renew(ctx, "a", ttl) },
		func(ctx context.Context) error { return a.Release(ctx, "a") },
		func(ctx context.Context) error { _, err := a.TryAcquire(ctx, "a", ttl); return err },
	} {
		var err error
		for bound := 20 * time.Millisecond; bound < patience; bound *= 4 { // a busy machine may need more to come to the lock
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			err = call(ctx)
			cancel()
			if err == nil || strings.Contains(err.Error(), "another process has the lock") {
				break
			}
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "another process has the lock")
		require.NotErrorIs(t, err, leader.ErrLost)
	}
	require.Equal(t, before, content(t, path))
	_, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok, "reading needs no lock")
	require.False(t, attempt(t, b, "b"), "nor does it take one to be refused")
	require.NoError(t, unlock())
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost, "its attempt failed")
	require.NoError(t, a.Release(within(t), "a"), "which frees what it had before")
	lead(t, b, "b")
	require.False(t, b.CleanStart())
}

func TestWhatKilledWritersLeftIsSweptByTheNextLeader(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	b := file.NewBackend(path)
	lead(t, b, "b")
	require.NoError(t, b.Release(within(t), "b"))
	old := time.Now().Add(-time.Hour)
	gone := []string{path + ".tmp-A", path + ".term.tmp-B"}
	kept := []string{path + ".tmp-FRESH", path + ".tmpfile", path + "x.tmp-A", path + ".corrupt-A"}
	for _, name := range append(gone, kept...) {
		put(t, name, `{"holder":"kil`)
		if name != kept[0] {
			require.NoError(t, os.Chtimes(name, old, old))
		}
	}
	lead(t, b, "b")
	for _, name := range gone {
		require.NoFileExists(t, name)
	}
	for _, name := range kept {
		require.FileExists(t, name)
	}
}

func TestNothingIsWrittenWhenTheLockFileWasRemoved(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "a"))
	before := content(t, path)
	_, err := a.Lock(within(t)) // the attempt finds it locked
	require.NoError(t, err)
	require.NoError(t, os.Remove(path+".lock"))
	_, err = a.TryAcquire(within(t), "a", ttl)
	require.ErrorContains(t, err, "lock file was removed")
	require.Equal(t, before, content(t, path))
	drafts, err := filepath.Glob(path + "*.tmp-*")
	require.NoError(t, err)
	require.Empty(t, drafts)
	lead(t, b, "b") // which makes it anew
	require.False(t, attempt(t, a, "a"))
}

// A lock on a file that is renamed over stays with the old inode, so the next
// writer gets one of its own.
func TestThreeWritersAcrossTwoRenames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, suffix string
		writers      int
	}{
		{"the lock is on a file of its own", ".lock", 1},
		{"control: the lock is on the record", "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			put(t, path, held())
			writers := 0
			for range 3 {
				b := file.NewBackend(path)
				b.LockOn(path + c.suffix)
				if !b.TryLock() {
					continue
				}
				t.Cleanup(func() { b.Unlock() })
				writers++
				put(t, path+".new", held())
				require.NoError(t, os.Rename(path+".new", path))
			}
			require.Equal(t, c.writers, writers)
		})
	}
}

func TestWaitSeesARelease(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	over := make(chan error, 1)
	go func() { over <- b.Wait(t.Context()) }()
	require.NoError(t, a.Renew(within(t), "a", ttl))
	require.Empty(t, over)
	start := time.Now()
	require.NoError(t, a.Release(within(t), "a"))
	require.NoError(t, <-over)
	lead(t, b, "b")
	t.Logf("release to takeover: %v", time.Since(start))
	require.True(t, b.CleanStart())
	require.Less(t, time.Since(start), ttl, "it did not wait for the lease")
}

func TestReleaseByAnotherIdentityForgetsNothing(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "x"))
	require.NoError(t, a.Renew(within(t), "a", ttl))
	require.False(t, attempt(t, b, "b"))
	require.NoError(t, a.Release(within(t), "a"))
	lead(t, b, "b")
	require.True(t, b.CleanStart())
}

// It was stopped before it took the lock, for longer than drafts are kept.
func TestAWriterWhoseDraftWasSweptWritesAnother(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a := file.NewBackend(path)
	a.SetPatience(patience)
	lead(t, a, "a")
	before := content(t, path)
	unlock, err := file.NewBackend(path).Lock(within(t))
	require.NoError(t, err)
	over := make(chan error, 1)
	ctx := within(t)
	go func() { over <- a.Renew(ctx, "a", ttl) }()
	var drafts []string
	await.Until(t, patience, func() bool {
		drafts, err = filepath.Glob(path + ".tmp-*")
		return err == nil && len(drafts) == 1
	})
	require.NoError(t, os.Remove(drafts[0]))
	require.NoError(t, unlock())
	require.NoError(t, <-over)
	require.NotEqual(t, before, content(t, path))
}

func TestNamesOfFilesBesideAnotherElectionsAreRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	lead(t, file.NewBackend(path), "a")
	for _, suffix := range []string{".term", ".lock", ".tmp-A", ".term.tmp-A", ".corrupt-A"} {
		_, err := file.NewBackend(path+suffix).WithRepair().TryAcquire(within(t), "b", ttl)
		var refused *leader.ConfigError
		require.ErrorAs(t, err, &refused, suffix)
		require.ErrorContains(t, err, "another name")
	}
	lead(t, file.NewBackend(path+".terms"), "b") // the control
}

func TestTheBackendConforms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			path := newPath(t)
			return func() driver.Backend { return file.NewBackend(path) }
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{
			"no directory": func(t *testing.T) driver.Backend {
				t.Helper()
				return file.NewBackend(filepath.Join(t.TempDir(), "missing", "leader.json"))
			},
			"a corrupt file": func(t *testing.T) driver.Backend { //nolint:thelper // it makes a backend
				path := newPath(t)
				require.NoError(t, os.WriteFile(path, []byte(`{"holder":`), 0o600))
				return file.NewBackend(path)
			},
			"no path": func(*testing.T) driver.Backend { return file.NewBackend("") },
		},
	})
}

// As between machines: no node can read the clock of another.
func TestTheBackendConformsWithoutACommonClock(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			path := newPath(t)
			return func() driver.Backend { return stranger(path) }
		},
	})
}
