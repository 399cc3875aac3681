package scheduler_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/scheduler"
)

// open opens a node that shares a directory, and closes it.
func open(ctx context.Context, dsn, mount string, local bool) error {
	config := quick(dsn, "a")
	config.Mount, config.MountLocal = mount, local
	n, err := scheduler.Open(ctx, config)
	if err == nil {
		n.Close()
	}
	return err
}

func TestANodeDoesNotStartWithAMountThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(dir, link))
	for name, c := range map[string]struct {
		path  string
		local bool
		want  error
	}{
		"it does not exist":            {filepath.Join(dir, "missing"), true, fs.ErrNotExist},
		"it is a file":                 {file, true, scheduler.ErrNotDirectory},
		"nothing is mounted there":     {dir, false, scheduler.ErrNotMountPoint},
		"nor where a link leads to it": {link, false, scheduler.ErrNotMountPoint},
	} {
		err := open(t.Context(), db.dsn, c.path, c.local)
		require.ErrorIs(t, err, c.want, name)
		mount, ok := errors.AsType[*scheduler.MountError](err)
		require.True(t, ok, name)
		assert.Equal(t, c.path, mount.Path, name)
		assert.ErrorContains(t, err, "scheduler: Mount "+c.path+" cannot be used: ", name)
	}
	err := open(t.Context(), db.dsn, "/proc", false) // a mount in which nobody can create files
	_, ok := errors.AsType[*scheduler.MountError](err)
	require.True(t, ok, "%v", err)
	require.NotErrorIs(t, err, scheduler.ErrNotMountPoint)

	for _, path := range []string{dir, link} {
		require.NoError(t, open(t.Context(), db.dsn, path, true), "control")
	}
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
		err := scheduler.Answer(t.Context(), func() error { <-back; return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, time.Since(began))
		broken := errors.New("broken")
		require.ErrorIs(t, scheduler.Answer(t.Context(), func() error { return broken }), broken, "control")
	})
}

func TestAMountedDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	shm, err := os.Stat("/dev/shm")
	require.NoError(t, err)
	dev, err := os.Stat("/dev")
	require.NoError(t, err)
	require.NotEqual(t, dev.Sys().(*syscall.Stat_t).Dev, shm.Sys().(*syscall.Stat_t).Dev, "Linux mounts a file system there")
	require.NoError(t, open(t.Context(), newDatabase(t).dsn, "/dev/shm", false))
}
