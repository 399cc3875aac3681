package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
  PGLATCH_FENCING_TOKEN. PGLATCH_LOCK_TOKEN, with which it could take and release every
  lock, is not there.

A server that cannot be reached, or whose store cannot be used, is tried again as long
as --wait says; without --wait for 30s at first, and without end while waiting in line.

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
	describeKillAfter(f, "ttl")
	f.BoolVarP(&r.nonblock, "nonblock", "n", false, "fail at once if somebody else has the lock")
	f.DurationVarP(&r.wait, "wait", "w", 0, "fail if the lock does not come within this time; also for a server that cannot be used (default: wait as long as it takes)")
	f.IntVarP(&r.conflictCode, "conflict-exit-code", "E", ExitBusy, "exit `code` when somebody else has the lock")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
	return cmd
}

// shortestSignals is the least time for signals to be sent and to act, which a short
// lease must have, too.
const shortestSignals = 20 * time.Millisecond

// fit returns the margin at the end of the lease in which the command is ended. The
// error names the flags by which too little is left for renewals.
//
//	├─ renewals ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0     context ends, --signal     KILL        gone      --ttl
func (r *leaseRun) fit(flags *pflag.FlagSet) (margin time.Duration, err error) {
	if !flags.Changed("kill-after") {
		r.killAfter = defaultKillAfter(r.ttl)
	}
	signals, clocks := max(r.ttl/signalShare, shortestSignals), r.ttl/clockShare
	margin = r.killAfter + signals + clocks
	if most := 2 * r.ttl / 3; margin > most && r.ttl >= lease.MinTTL {
		return 0, usageError("--kill-after %v + %v for the signals to act + %v for clocks of different rates = %v, which must be %v at most, two thirds of --ttl %v, "+
			"or the command can go on when another has the lock: shorten --kill-after, or lengthen --ttl", r.killAfter, signals, clocks, margin, most, r.ttl)
	}
	return margin, nil
}

// run acquires the lease and runs the command under it.
func (r *leaseRun) run(cmd *cobra.Command, app *App, args []string) error {
	f := cmd.Flags()
	margin, err := r.fit(f)
	if err != nil {
		return err
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
	}
	client, err := r.client(app, margin)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := cmd.Context()
	held, err := lockWait{bounded: r.nonblock || f.Changed("wait"), wait: r.wait}.acquire(ctx, app, client, request)
	switch {
	case errors.Is(err, lease.ErrHeld) && ctx.Err() == nil:
		return &ExitError{r.conflictCode, err}
	case err != nil:
		return leaseError(ctx, err)
	}
	return r.hold(ctx, client, held, (r.ttl-margin)/3, command)
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
	command.Env = withoutLockToken(childEnv(append(leaseVariables(held.Claim()), "PGLATCH_LOCK_HELD=true")...))
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
