//go:build unix

package servecmd

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file's mode is of the file, whatever the process does at the same time: nothing here is parallel.
func TestASocketForEverybodyGivesNoOtherFileToEverybody(t *testing.T) {
	socket, files := aShortPath(t), t.TempDir()
	modeOf := func(path string) os.FileMode {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	create := func(i int) os.FileMode {
		path := filepath.Join(files, strconv.Itoa(i))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o666)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return modeOf(path)
	}
	usual := create(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 2000 {
			listener, err := listenUnix(t.Context(), socket, 0o777)
			if assert.NoError(t, err) {
				assert.Equal(t, os.FileMode(0o777), modeOf(socket))
				assert.NoError(t, listener.Close())
			}
		}
	}()
	defer func() { <-ended }()
	for i := 1; ; i++ {
		require.Zero(t, create(i)&^usual, "a file has rights that it did not ask for")
		select {
		case <-ended:
			return
		default:
		}
	}
}

func aShortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch") //nolint:usetesting // with the name of a test it can be too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
