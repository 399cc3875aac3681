package sqlite_test

import (
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// smallDisk mounts a file system of 2 MB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("NOT RUN: mounting needs rights that this machine does not give: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// remove frees a file's space at once: a process that is started at this moment
// may hold its descriptors for a little longer.
func remove(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, os.Remove(path))
}

func TestAFullDiskLosesNothingAndWorkGoesOnWhenThereIsSpace(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 500<<10), 0o600))
	path := filepath.Join(dir, "leases.db")
	s := open(t, path, sqlite.Config{})
	granted := fill(t, s, "job/")
	t.Log(len(granted), "leases")
	same(t, s, granted)
	maps.Copy(granted, fill(t, s, "again/"))
	same(t, s, granted)

	remove(t, ballast)
	l := acquire(t, s, "after")
	granted[l.Name] = l.Claim
	same(t, s, granted)
	require.NoError(t, s.Close())
	same(t, open(t, path, sqlite.Config{}), granted)
}

func TestAFullDiskAtTheStart(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.NoError(t, f.Close())
	path := filepath.Join(dir, "leases.db")
	_, err = sqlite.Open(t.Context(), path, sqlite.Config{})
	require.ErrorIs(t, err, sqlite.ErrFull)
	remove(t, ballast)
	acquire(t, open(t, path, sqlite.Config{}), "job")
}

func TestAFileSystemThatTurnsReadOnly(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	path := filepath.Join(dir, "leases.db")
	s := open(t, path, sqlite.Config{})
	l := acquire(t, s, "job")
	require.NoError(t, s.Close())
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=2m"))
	refused(t, path, sqlite.ErrReadOnly)
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=2m"))
	require.NoError(t, open(t, path, sqlite.Config{}).Release(t.Context(), l.Claim))
}

// Root may write any file, so this is for others.
func TestAFileWithoutWriteMode(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write it; TestAFileSystemThatTurnsReadOnly is for root")
	}
	path := newPath(t)
	require.NoError(t, open(t, path, sqlite.Config{}).Close())
	require.NoError(t, os.Chmod(path, 0o400))
	refused(t, path, sqlite.ErrReadOnly)
	require.NoError(t, os.Chmod(path, 0o600))
	_, err := open(t, path, sqlite.Config{}).Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrNotFound)
}

func TestAFullDiskIsNoGoodHealthUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 500<<10), 0o600))
	s := open(t, filepath.Join(dir, "leases.db"), sqlite.Config{})
	require.NoError(t, s.Health(t.Context()))
	fill(t, s, "job/")
	err := s.Health(t.Context())
	require.ErrorIs(t, err, sqlite.ErrFull)
	require.NotErrorIs(t, err, lease.ErrBroken)
	remove(t, ballast)
	require.NoError(t, s.Health(t.Context()), "nobody has to have asked for a lease meanwhile")
}

func TestAFileThatIsMountedTwiceHasOneStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	again := newPath(t)
	require.NoError(t, os.WriteFile(again, nil, 0o600))
	if err := syscall.Mount(path, again, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("NOT RUN: mounting needs rights that this machine does not give: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(again, syscall.MNT_DETACH)) })
	require.Contains(t, elsewhere(t, again), sqlite.ErrInUse.Error())
	refused(t, again, sqlite.ErrInUse)
	require.NoError(t, s.Close())
	require.Equal(t, "opened\n", elsewhere(t, again), "the control: it can be opened now")
}
