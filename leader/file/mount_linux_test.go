package file_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// smallDisk mounts a file system of 1 MB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		notrun.Skip(t, "mounting needs rights that this machine does not give: "+err.Error())
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill leaves no byte free.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
}

// remove frees a file's space at once: a process that is started at this moment
// may hold its descriptors for a little longer.
func remove(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, os.Remove(path))
}

func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	path, ballast := filepath.Join(dir, "leader.json"), filepath.Join(dir, "ballast")
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	before := content(t, path)
	fill(t, ballast)
	for _, err := range []error{a.Renew(within(t), "a", ttl), a.Release(within(t), "a")} {
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.ErrorContains(t, err, "the disk is full")
		require.NotErrorIs(t, err, leader.ErrLost)
	}
	require.False(t, attempt(t, b, "b"))
	require.Equal(t, before, content(t, path))
	drafts, err := filepath.Glob(path + "*.tmp-*")
	require.NoError(t, err)
	require.Empty(t, drafts)

	remove(t, ballast)
	require.NoError(t, a.Renew(within(t), "a", ttl))
	require.NoError(t, a.Release(within(t), "a"))
	fill(t, ballast)
	ok, err := b.TryAcquire(within(t), "b", ttl)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.False(t, ok)
	remove(t, ballast)
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
	require.True(t, b.CleanStart())
}

func TestAFileSystemThatTurnsReadOnly(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	a := file.NewBackend(filepath.Join(dir, "leader.json"))
	lead(t, a, "a")
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=1m"))
	err := a.Renew(within(t), "a", ttl)
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorContains(t, err, "read-only")
	_, ok, err := a.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=1m"))
	require.NoError(t, a.Renew(within(t), "a", ttl))
}
