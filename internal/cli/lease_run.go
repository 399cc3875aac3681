package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/supervise"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const leaseRunHelp = `Run a command under a lease that heartbeats keep, and end with its exit code.

The command runs in a process group of its own, as under "pglatch run". When the
lease cannot be kept, the group is ended before the lease can expire: it gets
--signal early enough for KILL, --kill-after later, to be in time. Nobody else can have
the lock until then, if this machine goes on running. If it does not (it sleeps, or
pglatch is stopped), the group is ended as soon as it does, which may be too late:
against that, resources must check the fencing token.

The lease is released when the command has ended.

The command finds in its environment:
  PGLATCH_LOCK_HELD=true, PGLATCH_LEASE_NAME, PGLATCH_LEASE_OWNER, PGLATCH_LEASE_ID and
  PGLATCH_FENCING_TOKEN.

Exit codes: the command's own, or 128+n if signal n ended it; 75 (or -E) somebody
else has the lock, 76 the lease was lost, 130 or 143 a signal ended the wait for it,
69 the server is unavailable, 125 the command was not started, 126 it is not
executable, 127 it was not found.`

// A leaseRun is one use of the command lease run.
type leaseRun struct {
	lockServer
	leaseTerms
	childFlags
	nonblock     bool
	wait         time.Duration
	conflictCode int
}

func newLeaseRun(app *App) *cobra.Command {
	var r leaseRun
	cmd := &cobra.Command{
		Use:     "run NAME -- COMMAND [ARGUMENT...]",
		Short:   "Run a command under a lease",
		Long:    leaseRunHelp,
		Example: "  pglatch lease run nightly-report -- ./report\n  pglatch lease run -n deploy --ttl 30s -c 'make deploy'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd, app, args)
		},
	}
	f := cmd.Flags()
	r.lockServer.addFlags(f)
	r.leaseTerms.addFlags(f)
	r.childFlags.addFlags(f)
	f.BoolVarP(&r.nonblock, "nonblock", "n", false, "fail at once if somebody else has the lock")
	f.DurationVarP(&r.wait, "wait", "w", 0, "fail if the lock does not come within this time (default: wait as long as it takes)")
	f.IntVarP(&r.conflictCode, "conflict-exit-code", "E", ExitBusy, "exit `code` when somebody else has the lock")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
	return cmd
}

// run acquires the lease and runs the command under it.
func (r *leaseRun) run(cmd *cobra.Command, app *App, args []string) error {
	f := cmd.Flags()
	if !f.Changed("kill-after") {
		r.killAfter = min(r.killAfter, r.ttl/3)
	}
	args, command, err := r.command(cmd, app, args)
	if err != nil {
		return err
	}
	if len(command.Args) == 0 {
		return usageError("give the command to run after --, or with -c")
	}
	name, err := lockName(args)
	if err != nil {
		return err
	}
	request, err := r.request(app, name)
	if err != nil {
		return err
	}
	switch {
	case r.conflictCode < 0 || r.conflictCode > 255:
		return usageError("--conflict-exit-code is %d: use 0 to 255", r.conflictCode)
	case r.wait < 0:
		return usageError("--wait is %v: use a positive duration, or 0s for one attempt", r.wait)
	case r.killAfter > r.ttl/2:
		return usageError("--kill-after is %v: use half of --ttl at most, so that the command is gone before the lease ends", r.killAfter)
	}
	margin := r.ttl/10 + r.killAfter
	client, err := r.client(app, margin)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := cmd.Context()
	if err := probe(ctx, client, name); err != nil { // else it would wait for a server, too
		return leaseError(ctx, err)
	}
	held, err := client.AcquireWithRetry(ctx, name, request.Holder, r.acquireOptions(f.Changed("wait")))
	switch {
	case errors.Is(err, lease.ErrHeld) && ctx.Err() == nil:
		return &ExitError{r.conflictCode, err}
	case err != nil:
		return leaseError(ctx, err)
	}
	return r.hold(ctx, client, held, (r.ttl-margin)/3, command)
}

func (r *leaseRun) acquireOptions(waits bool) leasehttp.AcquireOptions {
	o := leasehttp.AcquireOptions{TTL: r.ttl, Metadata: r.metadata, LockDelay: r.lockDelay, MinHold: r.minHold, MaxWait: -1}
	switch {
	case r.nonblock || waits && r.wait == 0:
		o.NoLongPoll, o.MaxAttempts = true, 1
	case waits:
		o.MaxWait = r.wait
	}
	return o
}

// hold runs the command and releases the lease when it has ended. A signal does not
// end the heartbeat: the command gets it, and ends in its own way.
func (r *leaseRun) hold(ctx context.Context, client *leasehttp.Client, held *leasehttp.Lease, interval time.Duration, command supervise.Command) error {
	signals, stop := listen(ctx)
	defer stop()
	release := func() error { return client.ReleaseOnce(context.WithoutCancel(ctx), held) }
	if ctx.Err() != nil { // the last moment in which a signal did not go to the child
		return errors.Join(context.Cause(ctx), release())
	}
	work, _ := client.StartHeartbeat(context.WithoutCancel(ctx), held, leasehttp.HeartbeatOptions{Interval: interval})
	command.Signals = signals
	command.Env = childEnv(append(leaseVariables(held.Claim()), "PGLATCH_LOCK_HELD=true")...)
	result, err := supervise.Run(work, command)
	lost := context.Cause(work)
	releaseErr := release()
	start, notStarted := errors.AsType[*supervise.StartError](err)
	switch {
	case notStarted:
		return &ExitError{start.ExitCode, err}
	case result.Stopped || err != nil:
		return &ExitError{ExitLost, fmt.Errorf("the command was stopped: %w", lost)}
	case errors.Is(releaseErr, lease.ErrStale), errors.Is(releaseErr, lease.ErrExpired), errors.Is(releaseErr, lease.ErrNotFound):
		return &ExitError{ExitLost, fmt.Errorf("the command had ended with code %d: %w", result.ExitCode, releaseErr)}
	case releaseErr != nil:
		command.Logger.Warn("the lease was not released: it ends when its time is over", slog.Any("error", releaseErr))
	}
	if result.ExitCode != 0 {
		return &ExitError{Code: result.ExitCode}
	}
	return nil
}
