package pgserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds a start, including crash recovery, on a slow and busy machine.
const startTimeout = 60 * time.Second

// A StopMode selects how a server ends.
type StopMode int

// The modes of pg_ctl stop.
const (
	Smart     StopMode = iota // wait until the clients have gone
	Fast                      // disconnect the clients, write a checkpoint
	Immediate                 // abort every process; the next start runs crash recovery
)

func (m StopMode) signal() syscall.Signal {
	return [...]syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}[m]
}

var errClosed = errors.New("pgserver: the server is closed")

// firstStart tries ports until one is free. Another process may take it between the probe and the start.
func (s *Server) firstStart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the first start took too long"))
	defer cancel()
	for {
		host := s.opts.Host
		if len(s.opts.CommandPrefix) > 0 {
			host = "127.0.0.1" // the address may not exist here
		}
		port, err := freePort(ctx, host)
		if err != nil {
			return fmt.Errorf("pgserver: %w", err)
		}
		s.port = port
		s.proc, err = s.launch(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "Address already in use") {
			return fmt.Errorf("pgserver: start PostgreSQL %s: %w", s.install.Version, err)
		}
	}
}

// Start starts a stopped or killed server on the same data and the same port, and waits until it accepts
// connections. On a running server it does nothing. It retries while remains of a killed server (a backend
// that still holds the shared memory, a socket) are in the way.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked(ctx)
}

func (s *Server) startLocked(ctx context.Context) error {
	if s.closed {
		return errClosed
	}
	if s.runningLocked() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the start took too long"))
	defer cancel()
	for {
		var err error
		s.proc, err = s.launch(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errExited) || !obstructed(err.Error()) {
			return fmt.Errorf("pgserver: start PostgreSQL %s again: %w", s.install.Version, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pgserver: %w: %w", context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// obstructed reports whether a log mentions remains of an earlier server, which disappear on their own.
func obstructed(log string) bool {
	for _, s := range []string{"Address already in use", "Is another", "pre-existing shared memory block"} {
		if strings.Contains(log, s) {
			return true
		}
	}
	return false
}

// Stop stops the server and waits until it has ended. On a stopped server it does nothing.
// When ctx ends first, the server is still stopping and Stop returns the cause.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopLocked(ctx, mode)
}

func (s *Server) stopLocked(ctx context.Context, mode StopMode) error {
	if s.proc == nil {
		return nil
	}
	pid := s.proc.pid()
	_ = s.proc.cmd.Process.Signal(mode.signal())   // it may have exited
	_ = s.proc.cmd.Process.Signal(syscall.SIGCONT) // and it may be suspended
	select {
	case <-s.proc.done:
	case <-ctx.Done():
		return fmt.Errorf("pgserver: stop postmaster %d: %w", pid, context.Cause(ctx))
	}
	s.proc = nil
	return s.dog.watch(0)
}

// Restart is Stop and Start.
func (s *Server) Restart(ctx context.Context, mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stopLocked(ctx, mode); err != nil {
		return err
	}
	return s.startLocked(ctx)
}

// RestartAnyhow restarts the server in one of three ways: Fast, Immediate or after Kill.
func (s *Server) RestartAnyhow(ctx context.Context, random *rand.Rand) error {
	switch random.IntN(3) {
	case 0:
		return s.Restart(ctx, Fast)
	case 1:
		return s.Restart(ctx, Immediate)
	default:
		return errors.Join(s.Kill(), s.Start(ctx))
	}
}

// Kill ends the postmaster and every process of the server with SIGKILL, as a power cut would, and waits
// until the postmaster has ended. Start runs crash recovery.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	pid := s.proc.pid()
	_ = syscall.Kill(pid, syscall.SIGSTOP) // no new children from here on
	pids, err := children(pid)
	for _, p := range append(pids, pid) {
		_ = syscall.Kill(p, syscall.SIGKILL) // it may have exited
	}
	<-s.proc.done
	s.proc = nil
	return errors.Join(err, s.dog.watch(0))
}

// Signal sends a signal to the postmaster, such as SIGHUP to reload its configuration or SIGSTOP to suspend it.
// (The backends continue to run while the postmaster is suspended.)
func (s *Server) Signal(signal os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return os.ErrProcessDone
	}
	return s.proc.cmd.Process.Signal(signal)
}

// PID is the postmaster's process id, or 0 when the server is stopped.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runningLocked() {
		return 0
	}
	return s.proc.pid()
}

func (s *Server) runningLocked() bool {
	if s.proc == nil {
		return false
	}
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}
