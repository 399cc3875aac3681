//go:build unix

package servecmd

import (
	"context"
	"net"
	"os"
	"syscall"
)

// listenUnix makes a socket that has its mode from the beginning. The file mode creation mask is
// the whole process's: what else makes a file in this moment gets a narrower one.
func listenUnix(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(int(0o777 &^ mode)))
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}
