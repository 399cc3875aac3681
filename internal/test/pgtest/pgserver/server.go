package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// A Server is one PostgreSQL server with its data. It is safe for concurrent use. Close it.
type Server struct {
	opts    Options
	install Installation
	as      account
	dir     string
	port    int
	dog     *watchdog

	mu     sync.Mutex // serializes start, stop and close
	proc   *process   // nil when stopped
	closed bool
}

// Start finds PostgreSQL, creates a cluster and starts it. On success the server accepts connections and the
// caller must Close it. On failure nothing is left behind, and the error says how to get a PostgreSQL if
// there is none. The end of ctx ends the attempt; it does not stop a server that has started.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	install, err := Find(ctx, opts.Version)
	if err != nil {
		return nil, err
	}
	s, err := newServer(opts, install)
	if err != nil {
		return nil, err
	}
	if err := s.makeData(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: %w", err), s.Close())
	}
	if err := s.firstStart(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newServer creates the directory and its watchdog; the directory has no data yet.
func newServer(opts Options, install Installation) (*Server, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(as)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	dog, err := newWatchdog(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: %w", err), os.RemoveAll(dir))
	}
	s := &Server{opts: opts, install: install, as: as, dir: dir, dog: dog}
	if err := as.mkdir(s.SocketDir(), 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: %w", err), s.Close())
	}
	return s, nil
}

// Close stops the server with [Immediate] if it runs, and removes its directory. A second Close does nothing.
// On failure the error says what was left behind.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	stopErr := s.stopLocked(context.Background(), Immediate)
	if err := s.dog.clean(); err != nil {
		return errors.Join(stopErr, fmt.Errorf("pgserver: remove %s: %w", s.dir, err))
	}
	return stopErr
}

// DSN is the URL of a database of this server, for the superuser postgres. Empty means the database postgres.
func (s *Server) DSN(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort(s.opts.Host, strconv.Itoa(s.port)),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Host is the address the server listens on.
func (s *Server) Host() string { return s.opts.Host }

// Port is the TCP port. It stays the same over Stop and Start.
func (s *Server) Port() int { return s.port }

// SocketDir is the directory of the Unix socket.
func (s *Server) SocketDir() string { return filepath.Join(s.dir, "run") }

// Installation is the installation whose programs the server runs.
func (s *Server) Installation() Installation { return s.install }

// Version is the server's version, such as "15.18".
func (s *Server) Version() string { return s.install.Version }

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

func (s *Server) dataFile(name string) string { return filepath.Join(s.dataDir(), name) }
