package servecmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// socketPath returns the path of a Unix socket to listen on; "" for an address.
func socketPath(listen string) string {
	path, _ := strings.CutPrefix(listen, "unix:")
	if path == listen {
		return ""
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		path = rest
	}
	return path
}

// A socket is a Unix socket to listen on. A lock on a file beside it keeps other servers away; the
// file stays. The lock distinguishes the socket of a killed server from that of a running one.
type socket struct {
	path string
	mode os.FileMode
}

// longestSocket is the longest path that all systems can bind.
const longestSocket = 103 // bytes

func (s *locksCommand) socket() (*socket, error) {
	path := socketPath(s.listen)
	if path == "" {
		if s.socketMode != defaultSocketMode {
			return nil, program.UsageError("--socket-mode is for --listen unix:/…")
		}
		return nil, nil //nolint:nilnil // no socket, no error
	}
	mode, err := strconv.ParseUint(s.socketMode, 8, 32)
	switch {
	case err != nil || mode > 0o777 || mode&0o200 == 0:
		return nil, program.UsageError("--socket-mode is %q: use an octal number with which its owner can write, such as 0660", s.socketMode)
	case !strings.HasPrefix(path, "/"):
		return nil, program.UsageError("--listen is %s: give an absolute path, such as unix:/run/pglatch/locks.sock", s.listen)
	case len(path) > longestSocket:
		return nil, program.UsageError("--listen: the path of a socket has at most %d bytes, and this one %d", longestSocket, len(path))
	case s.certificates.file != "" || s.certificates.key != "":
		return nil, program.UsageError("--listen is a Unix socket, where nobody speaks TLS: leave out --tls-cert and --tls-key")
	}
	return &socket{path, os.FileMode(mode)}, nil
}

// listen takes over the socket's path, also from a socket without a listener. free gives the path
// up. Call free after the listener was closed, which removes the socket.
func (s *socket) listen(ctx context.Context) (listener net.Listener, free func() error, err error) {
	lock := flock.New(s.path+".lock", flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = fmt.Errorf("%s has another server", s.path)
	}
	if err != nil {
		return nil, nil, err
	}
	if err = s.clear(ctx); err == nil {
		listener, err = listenUnix(ctx, s.path, s.mode)
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Unlock())
	}
	return listener, lock.Unlock, nil
}

// clear removes only the socket of a killed server.
func (s *socket) clear(ctx context.Context) error {
	switch info, err := os.Lstat(s.path); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is there, and no socket: remove it, or use another path", s.path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s has another server", s.path), conn.Close())
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s is there, and it is not known whether somebody listens: %w", s.path, err)
	}
	return os.Remove(s.path)
}
