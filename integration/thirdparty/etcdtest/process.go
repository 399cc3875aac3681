package etcdtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/pglatch/pglatch/internal/test/proctest"
)

// member is the role of a process that runs a Member.
const member = "etcd member"

// Main runs a member if this process was started as one, and then ends the process. TestMain calls
// it first.
func Main() { proctest.Play(member, runMember) }

func runMember(_ context.Context, m Member) error {
	address, _, err := Serve(m)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(os.Stdout, address)
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
	return err
}

// A Process is a member in a process of its own.
type Process struct {
	*proctest.Process

	Member  Member
	Address string // its client URL

	tb     testing.TB
	prefix []string
}

// Start starts a member: the program of this process, whose main calls Main. prefix is a command
// that runs its arguments, such as ip netns exec.
func Start(tb testing.TB, m Member, prefix ...string) *Process {
	tb.Helper()
	p := &Process{Member: m, tb: tb, prefix: prefix}
	p.Start()
	return p
}

// Start starts the member again, with its stored data.
func (p *Process) Start() {
	p.tb.Helper()
	cmd := proctest.As(p.tb, member, p.Member, p.prefix...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	p.Process = proctest.Start(p.tb, cmd)
	p.Address = p.Line()
}
