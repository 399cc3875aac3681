//go:build unix

package servecmd

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// listenUnix creates a socket that only its owner can use until it has its mode. For that it briefly
// restricts the umask, which applies to the whole process: other files created at this moment must not
// get more rights than otherwise.
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
