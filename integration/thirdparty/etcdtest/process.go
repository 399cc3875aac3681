package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// roleVariable is the environment variable with the Member that a process of this program should
// run.
const roleVariable = "PGLATCH_ETCD_MEMBER"

// Main runs a member if this process was started as one, and then ends the process. TestMain calls
// it first.
func Main() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	var m Member
	err := json.Unmarshal([]byte(role), &m)
	if err == nil {
		var address string
		if address, _, err = Serve(m); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(answer{Address: address})
		}
	}
	if err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(answer{Error: err.Error()})
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
	os.Exit(0)
}

type answer struct {
	Address string
	Error   string
}

// A Process is a member in a process of its own.
type Process struct {
	Member  Member
	Address string // its client URL

	prefix []string
	cmd    *exec.Cmd
}

// Start starts a member: the program of this process, whose main calls Main. prefix is a command
// that runs its arguments, such as ip netns exec.
func Start(m Member, prefix ...string) (*Process, error) {
	p := &Process{Member: m, prefix: prefix}
	return p, p.Start()
}

// Start starts the member again, with its stored data.
func (p *Process) Start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	role, err := json.Marshal(p.Member)
	if err != nil {
		return err
	}
	args := append(append([]string{}, p.prefix...), self)
	p.cmd = exec.CommandContext(context.Background(), args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), roleVariable+"="+string(role))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	if _, err := p.cmd.StdinPipe(); err != nil {            // which ends with this process
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	var a answer
	if err := json.NewDecoder(out).Decode(&a); err != nil || a.Error != "" {
		return errors.Join(fmt.Errorf("etcd did not start: %s", a.Error), err, p.Kill())
	}
	p.Address = a.Address
	return nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process: SIGSTOP, SIGCONT.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as kill -9 does, and waits for its end.
func (p *Process) Kill() error {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // killed, and its pipes are closed
	return nil
}
