package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A replica is a process of examples/agents that the driver started.
type replica struct {
	name string
	url  string
	cmd  *exec.Cmd
	log  *logbook
	life io.Closer // its standard input: closed by the driver's end at the latest
}

// startReplica starts a replica and returns when it listens. The end of ctx kills it.
func startReplica(ctx context.Context, name, dsn string) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &replica{name: name, log: newLogbook()}
	r.cmd = exec.CommandContext(ctx, self)
	r.cmd.Env = append(os.Environ(), replicaVariable+"="+name, dsnVariable+"="+dsn)
	r.cmd.Stderr = r.log
	// A process group of its own: Ctrl-C is the driver's business. And if the driver dies
	// while a replica is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.life, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replica %s does not listen; its log:\n%s", name, r.log), r.kill())
	}
	r.url = strings.TrimSpace(line)
	return r, nil
}

func (r *replica) pid() int { return r.cmd.Process.Pid }

// kill is kill -9, and returns when the process is gone.
func (r *replica) kill() error {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = r.cmd.Wait() // "signal: killed"
	return nil
}

func (r *replica) stop() error   { return r.cmd.Process.Signal(syscall.SIGSTOP) }
func (r *replica) resume() error { return r.cmd.Process.Signal(syscall.SIGCONT) }
