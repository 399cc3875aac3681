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
	life io.Closer // its standard input: closed by the driver's end at the latest
}

// StartProcess starts a server and returns when it has called Listen or Ready. env tells
// it that, and which one, it is. The end of ctx kills it.
func StartProcess(ctx context.Context, name string, env ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, Log: newLogbook()}
	p.cmd = exec.CommandContext(ctx, self)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.Log
	// A process group of its own: Ctrl-C is the driver's business. And if the driver dies
	// while a process is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
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

// Logs has the end of the log of each.
func Logs(processes ...*Process) string {
	var b strings.Builder
	for _, p := range processes {
		fmt.Fprintf(&b, "the end of the log of %s, process %d:\n%s\n", p.Name, p.PID(), p.Log.Tail())
	}
	return b.String()
}

// PID is the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill is kill -9, and returns when the process is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Wait() // "signal: killed"
	return nil
}

// Terminate sends SIGTERM and returns when the process is gone: an error if that
// was not in good order.
func (p *Process) Terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// Stop is kill -STOP.
func (p *Process) Stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume is kill -CONT.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// EndWithDriver is called first by the process that StartProcess started: it ends
// the process when the driver ends, however that comes about. Then standard input
// does.
func EndWithDriver() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

// Listen is called by that process when it is ready: it listens on a loopback
// address and tells the driver which.
func Listen(ctx context.Context) (net.Listener, error) { return ListenOn(ctx, "127.0.0.1:0") }

// Ready takes the place of Listen in a process that does not listen.
func Ready() { fmt.Println() }

// ListenOn does the same at an address, for a process that comes back where it was.
func ListenOn(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return listener, nil
}
