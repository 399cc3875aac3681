//go:build linux

package electiontest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
)

// The time settings of all candidates, and of tests.
const (
	Lease        = time.Second
	RenewTimeout = Lease / 3 // the default
	Retry        = 200 * time.Millisecond
	RetryAtMost  = Retry * 12 / 10 // with its jitter

	Patience = await.Patience

	defiance = time.Second // how long stubborn and reckless nodes continue
)

const candidate = "candidate" // the role of a child, in the sense of package proctest

// A Job is a child process's task, from its environment.
type Job struct {
	Role     string            `json:"role"` // one of the roles passed to Main
	Node     int               `json:"node"`
	Settings map[string]string `json:"settings"` // what the role needs
	Observer string            `json:"observer"`
	Grace    time.Duration     `json:"grace"` // ReconnectGrace
	// Stubborn nodes continue fenced operations after the end of their term.
	Stubborn bool `json:"stubborn"`
	// Busy nodes check their context all the time.
	Busy bool `json:"busy"`
	// Reckless nodes do not check their context.
	Reckless bool `json:"reckless"`
	// Trace is the directory of a run: see package replay. "" = nothing is written.
	Trace string `json:"trace"`
}

// Config is the configuration of the job's Elector on a backend.
func (j Job) Config(backend leader.Backend) leader.Config {
	return leader.Config{
		Name: "election", Backend: backend, Identity: j.Identity(),
		LeaseDuration: Lease, ReconnectGrace: j.Grace, Retry: backoff.Fixed{Interval: Retry},
		KeepTrying: true, // a fault that no attempt survives can come before a node has followed for long
	}
}

// Identity returns a name that distinguishes this process from others.
func (j Job) Identity() string { return j.IdentityOf(os.Getpid()) }

// IdentityOf returns the name of the process with a process id.
func (j Job) IdentityOf(pid int) string { return fmt.Sprintf("node-%d-%d", j.Node, pid) }

// A Role is how a child takes part in an election, until it is asked to stop or ctx ends.
type Role func(ctx context.Context, c *Child) error

// Main plays a role and exits if this process is a child. Otherwise it does nothing. Call it first
// in TestMain.
func Main(roles map[string]Role) {
	proctest.Play(candidate, func(ctx context.Context, job Job) error {
		err := play(ctx, job, roles)
		if err != nil {
			say("failed", err)
		}
		return err
	})
}

func play(ctx context.Context, job Job, roles map[string]Role) error {
	role, ok := roles[job.Role]
	if !ok {
		return fmt.Errorf("role %q is not known to electiontest.Main", job.Role)
	}
	c, err := newChild(ctx, job)
	if err != nil {
		return err
	}
	err = role(ctx, c)
	c.afterwards.Wait()
	return err
}
