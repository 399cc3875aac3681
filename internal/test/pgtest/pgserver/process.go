package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is a postmaster that has been started. A goroutine reaps it and closes done.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the postmaster and waits for its end. Its children notice and end on their own.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have exited
	<-p.done
}

// spawn starts a postmaster and notifies the watchdog.
func (s *Server) spawn() (*process, error) {
	log, err := os.OpenFile(s.LogPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd := s.as.prefixed(context.Background(), s.opts.CommandPrefix, filepath.Join(s.install.BinDir, "postgres"),
		"-D", s.dataDir(), "-h", s.opts.Host, "-p", strconv.Itoa(s.port), "-k", s.SocketDir())
	cmd.Env = append(cmd.Env, s.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log says more than a postmaster's exit code
		close(p.done)
	}()
	if err := s.dog.watch(p.pid()); err != nil {
		p.kill()
		return nil, fmt.Errorf("the watchdog has died: %w", err)
	}
	return p, nil
}

var errExited = errors.New("the server exited")

// await waits until the postmaster of p accepts connections.
// It watches postmaster.pid, as pg_ctl does, because a connection attempt would leave a line in the log.
func (s *Server) await(ctx context.Context, p *process) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.ready(p) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return errExited
		case <-tick.C:
		}
	}
}

// ready reads the first line (the process id) and the eighth (the state) of postmaster.pid.
func (s *Server) ready(p *process) bool {
	text, err := os.ReadFile(s.dataFile("postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(p.pid()) && strings.TrimSpace(lines[7]) == "ready"
}

// launch is spawn and await. An error contains the log lines written meanwhile.
func (s *Server) launch(ctx context.Context) (*process, error) {
	offset, err := s.LogOffset()
	if err != nil {
		return nil, err
	}
	p, err := s.spawn()
	if err != nil {
		return nil, err
	}
	err = s.await(ctx, p)
	if err == nil {
		return p, nil
	}
	p.kill()
	text, _ := s.LogSince(offset)
	return nil, errors.Join(fmt.Errorf("%w; its log says:\n%s", err, text), s.dog.watch(0))
}
