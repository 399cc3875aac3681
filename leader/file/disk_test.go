package file_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/file"
)

func TestADirectoryThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	b := file.NewBackend(filepath.Join(dir, "leader.json"))
	_, err := b.TryAcquire(within(t), "b", ttl)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "create the directory")
	_, _, err = b.Leader(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, b.Wait(within(t)), fs.ErrNotExist)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	lead(t, b, "b")
}

// Root may write anywhere; TestAFileSystemThatTurnsReadOnly is for root.
func TestADirectoryWithoutWriteMode(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write it; TestAFileSystemThatTurnsReadOnly is for root")
	}
	path := newPath(t)
	b := file.NewBackend(path)
	lead(t, b, "b")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o500))
	err := b.Renew(within(t), "b", ttl)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "a user who may write")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	require.NoError(t, b.Renew(within(t), "b", ttl))
}
