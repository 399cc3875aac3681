//go:build unix

package servecmd

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// listenUnix makes a socket that is its owner's alone until it has its mode. The file mode creation mask is
// the whole process's: what else makes a file in this moment must not get rights that it would not have.
func listenUnix(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	listener, err := bindUnix(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

func bindUnix(ctx context.Context, path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o077))
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}
