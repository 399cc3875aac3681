package scheduler

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestANodeDoesNotStartWithAMountThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(dir, link))
	open := func(mount string, local bool) error {
		config := quick(dsn, "a")
		config.Mount, config.MountLocal = mount, local
		n, err := Open(t.Context(), config)
		if err == nil {
			n.Close()
		}
		return err
	}
	for _, c := range []struct {
		path  string
		local bool
		want  error
	}{
		{filepath.Join(dir, "missing"), true, fs.ErrNotExist},
		{file, true, ErrNotDirectory},
		{dir, false, ErrNotMountPoint},
		{link, false, ErrNotMountPoint},
	} {
		err := open(c.path, c.local)
		require.ErrorIs(t, err, c.want)
		assert.ErrorContains(t, err, "scheduler: Mount "+c.path+" cannot be used: ")
	}
	err := open("/proc", false) // a mount in which nobody can create files
	require.ErrorContains(t, err, "scheduler: Mount /proc cannot be used: ")
	require.NotErrorIs(t, err, ErrNotMountPoint)

	for _, path := range []string{dir, link} {
		require.NoError(t, open(path, true), "control")
	}
	require.NoError(t, open("/dev/shm", false), "Linux mounts a file system there")
	left, err := filepath.Glob(filepath.Join(dir, ".check-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "the check leaves nothing behind")
}

func TestAMountThatDoesNotAnswerIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		defer close(back)
		began := time.Now()
		require.ErrorIs(t, answer(t.Context(), func() error { <-back; return nil }), context.DeadlineExceeded)
		assert.Equal(t, mountTimeout, time.Since(began))
		broken := errors.New("broken")
		require.ErrorIs(t, answer(t.Context(), func() error { return broken }), broken, "control")
	})
}
