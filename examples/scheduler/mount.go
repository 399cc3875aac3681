package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// mountTimeout bounds the check: an unreachable file server blocks every call without a limit.
const mountTimeout = 10 * time.Second

// The errors of a mount, beside those of the file system.
var (
	ErrNotDirectory  = errors.New("it is not a directory")
	ErrNotMountPoint = errors.New("nothing is mounted there: files would go to the local disk, where other nodes do not see them")
)

// checkMount returns an error if the shared directory is missing, if it must be a mount point and is not, or if it
// cannot be written to.
func (c Config) checkMount(ctx context.Context) error {
	if c.Mount == "" {
		return nil
	}
	if err := answer(ctx, c.tryMount); err != nil {
		return fmt.Errorf("Mount %s cannot be used: %w", c.Mount, err) //nolint:staticcheck // the name of the field
	}
	return nil
}

// answer returns the error of check, or an error after 10 s.
func answer(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	checked := make(chan error, 1)
	go func() { checked <- check() }() // a call that hangs cannot be interrupted, so it may outlive answer
	select {
	case err := <-checked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it does not answer: %w", context.Cause(ctx))
	}
}

func (c Config) tryMount() error {
	info, err := os.Stat(c.Mount)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return ErrNotDirectory
	}
	target, err := filepath.EvalSymlinks(c.Mount)
	if err != nil {
		return err
	}
	parent, err := os.Stat(filepath.Join(target, ".."))
	if err != nil {
		return err
	}
	// A mount is on another device than the parent directory; "/" is its own parent. This cannot detect a bind mount
	// within one file system.
	mounted := os.SameFile(info, parent) || info.Sys().(*syscall.Stat_t).Dev != parent.Sys().(*syscall.Stat_t).Dev
	if !mounted && !c.MountLocal {
		return ErrNotMountPoint
	}
	f, err := os.CreateTemp(c.Mount, ".check-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("a node that starts made this file\n")
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}
