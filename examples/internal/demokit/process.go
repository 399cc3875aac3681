package demokit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A Process is this program again, as a server that the driver started.
type Process struct {
	Name string
	URL  string
	Log  *Logbook

	cmd  *exec.Cmd
	life io.Closer // its standard input, closed at the latest when the driver ends
}

// StartProcess starts a server and returns when the server has called Listen or Ready. env
// tells the server its role and name. When ctx ends, it is killed.
func StartProcess(ctx context.Context, name string, env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, Log: newLogbook()}
	p.cmd = exec.CommandContext(ctx, self)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.Log
	// The process gets its own process group, so that Ctrl-C reaches only the driver. If the driver
	// dies while a process is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.life, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not listen; its log:\n%s", name, p.Log), p.Kill())
	}
	p.URL = strings.TrimSpace(line)
	return p, nil
}

// Logs returns the end of each process's log.
func Logs(processes ...*Process) string {
	var b strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&b, "the end of the log of %s, process %d:\n%s\n", p.Name, p.PID(), p.Log.Tail())
	}
	return b.String()
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends kill -9 and returns when the process is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Wait() // "signal: killed"
	return nil
}

// Terminate sends SIGTERM and returns when the process is gone. It returns an error if the
// process did not exit cleanly.
func (p *Process) Terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// Stop sends kill -STOP.
func (p *Process) Stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume sends kill -CONT.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// EndWithDriver ends the process when the driver ends, for whatever reason: standard input
// ends then. A process that StartProcess started must call it first.
func EndWithDriver() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

// Listen listens on a loopback address and reports the address to the driver. A process that
// StartProcess started calls it when it is ready.
func Listen(ctx context.Context) (net.Listener, error) { return ListenOn(ctx, "127.0.0.1:0") }

// Ready replaces Listen in a process that does not listen.
func Ready() { fmt.Println() }

// ListenOn is like Listen, at a given address, for a process that restarts at its old address.
func ListenOn(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return listener, nil
}
