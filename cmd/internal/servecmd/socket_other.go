//go:build !unix

package servecmd

import (
	"context"
	"errors"
	"net"
	"os"
)

// listenUnix refuses: here file permissions do not control who can connect.
func listenUnix(context.Context, string, os.FileMode) (net.Listener, error) {
	return nil, errors.New("sockets are not served on this system: use --listen 127.0.0.1:8080")
}
