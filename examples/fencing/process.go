package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A process is a writer that can be stopped.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// startProcess starts this program again, as a writer. When ctx ends, it is killed.
func startProcess(ctx context.Context, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(stdout)
	return p, p.cmd.Start()
}

// line returns the next line that the process prints.
func (p *process) line() (string, error) {
	line, err := p.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (p *process) stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// resume lets the process continue with its write.
func (p *process) resume() error {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return err
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// end waits until the process has exited by itself.
func (p *process) end() error { return p.cmd.Wait() }

// kill ends the process unless it has ended, even while it is stopped.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the process may be gone
	_ = p.cmd.Wait()
}
