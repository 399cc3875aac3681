package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
	"github.com/pglatch/pglatch/internal/histogram"
)

// RoleEnv is set in processes of this program that are not the bench itself.
const RoleEnv = "PGLATCH_BENCH_ROLE"

// Role is the role of a worker.
const Role = "worker"

// A Process is a worker seen from the bench. Make only one call at a time.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// Start starts this program again, as a worker. The caller must Close it. When ctx ends, the
// worker is killed.
func Start(ctx context.Context, o Open) (*Process, error) {
	cmd, in, out, err := Spawn(ctx, Role)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd, in, json.NewEncoder(in), json.NewDecoder(out)}
	if _, err := p.call(request{Open: &o, Bound: setUp}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Spawn starts this program again in a role. When ctx ends, the process is killed.
func Spawn(ctx context.Context, role string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), RoleEnv+"="+role)
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// Time limits of calls that have no duration of their own.
const (
	setUp  = time.Minute
	finish = 20 * time.Second
)

// call sends a request and waits for the worker, which enforces the time limit.
func (p *Process) call(r request) (reply, error) {
	var a reply
	if err := p.enc.Encode(r); err != nil {
		return a, fmt.Errorf("worker: %w", err)
	}
	if err := p.dec.Decode(&a); err != nil {
		return a, fmt.Errorf("the worker ended: %w", err)
	}
	switch {
	case a.Broken:
		return a, fmt.Errorf("%w: %s", exclusion.ErrTwoHolders, a.Error)
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Run runs a load.
func (p *Process) Run(l workload.Load) (workload.Sample, error) {
	a, err := p.call(request{Load: &l, Bound: l.Duration + setUp})
	if err != nil {
		return workload.Sample{}, err
	}
	return *a.Sample, nil
}

// Hold takes n locks within the time limit and keeps them until Close.
func (p *Process) Hold(n int, bound time.Duration) (workload.Stock, error) {
	a, err := p.call(request{Hold: n, Bound: bound})
	if err != nil {
		return workload.Stock{}, err
	}
	return *a.Stock, nil
}

// Drop releases the held locks and returns how many seconds that took.
func (p *Process) Drop() (seconds float64, err error) {
	a, err := p.call(request{Drop: true, Bound: setUp})
	if err != nil {
		return 0, err
	}
	return a.Stock.Released, nil
}

// Lose takes n locks and returns the times until their holders knew of their loss.
func (p *Process) Lose(n int) (*histogram.Histogram, error) {
	a, err := p.call(request{Lose: n, Bound: setUp})
	return a.Losses, err
}

// Finish returns the cost, and fails if the guards of pglatch were not on.
func (p *Process) Finish() (Cost, error) {
	a, err := p.call(request{Finish: true, Bound: finish})
	if a.Cost == nil {
		return Cost{}, err
	}
	return *a.Cost, err
}

// Close ends the worker and waits a limited time for it.
func (p *Process) Close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	tooLong := time.AfterFunc(setUp, func() { _ = p.cmd.Process.Kill() })
	defer tooLong.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// Kill kills the worker and waits for it. Its locks are left to the servers.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed
}
