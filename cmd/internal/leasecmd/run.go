package leasecmd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const runHelp = `Run a command under a lease that heartbeats renew, and exit with its exit code.

The command runs in its own process group, as under "pglatch run". If the lease cannot be
renewed, the group is ended before the lease can expire: it gets --signal early enough for
KILL, --kill-after later, to be in time. As long as this machine keeps running, nobody else can
have the lock until then. If the machine sleeps or pglatch is stopped, the group is ended as
soon as pglatch resumes, which may be too late. To prevent late writes, resources must check
the fencing token.

The lease is released when the command has ended.

The command's environment has:
  PGLATCH_LOCK_HELD=true, PGLATCH_LEASE_NAME, PGLATCH_LEASE_OWNER, PGLATCH_LEASE_ID and
  PGLATCH_FENCING_TOKEN. It does not have PGLATCH_LOCK_TOKEN, with which the command could
  take and release every lock. With --slots, --shared and --exclusive it also has
  PGLATCH_FENCE, which rises over all holders of the lock, and PGLATCH_SLOT, 0 for the whole
  lock; PGLATCH_FENCING_TOKEN then rises over the leases of that slot.

If no server can be reached, or its store cannot be used, pglatch retries as long as --wait
allows. Without --wait, it retries for 30s at first, and without limit once it is queued.

Exit codes: the command's own, or 128+n if signal n ended it; 75 (or -E) another holder
has the lock, 76 the lease was lost, 130 or 143 a signal ended the wait, 69 the server is
unavailable, 125 the command was not started, 126 it is not executable, 127 it was not
found.`

// A runCommand is one use of the command lease run.
type runCommand struct {
	lockserver.ClientFlags
	terms
	child.Flags
	program.Waiting
}

func newRun(app *program.App) *cobra.Command {
	var r runCommand
	cmd := &cobra.Command{
		Use:     "run NAME -- COMMAND [ARGUMENT...]",
		Short:   "Run a command under a lease",
		Long:    runHelp,
		Example: "  pglatch lease run nightly-report -- ./report\n  pglatch lease run -n deploy --ttl 30s -c 'make deploy'\n  pglatch lease run --slots 3 gpu -- ./train",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd, app, args)
		},
	}
	f := cmd.Flags()
	r.ClientFlags.AddFlags(f)
	r.terms.addFlags(f)
	r.Flags.AddFlags(f)
	child.DescribeKillAfter(f, "ttl")
	r.Waiting.AddFlags(cmd, "also for a server that cannot be used")
	return cmd
}

// fit returns the margin at the end of the lease in which the command is ended. If it leaves too
// little time for renewals, the error names the flags.
//
//	├─ renewals ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0     context ends, --signal     KILL        gone      --ttl
func (r *runCommand) fit(flags *pflag.FlagSet) (margin time.Duration, err error) {
	if !flags.Changed("kill-after") {
		r.KillAfter = child.DefaultKillAfter(r.TTL)
	}
	signals, clocks := child.SignalTime(r.TTL), renew.Margin(r.TTL)
	margin = r.KillAfter + signals + clocks
	if most := 2 * r.TTL / 3; margin > most && r.TTL >= lease.MinTTL {
		return 0, program.UsageError("--kill-after %v + %v for the signals to act + %v for clocks of different rates = %v, which must be %v at most, two thirds of --ttl %v, "+
			"or the command can go on when another has the lock: shorten --kill-after, or lengthen --ttl", r.KillAfter, signals, clocks, margin, most, r.TTL)
	}
	return margin, nil
}

// run acquires the lease and runs the command under it.
func (r *runCommand) run(cmd *cobra.Command, app *program.App, args []string) error {
	f := cmd.Flags()
	margin, err := r.fit(f)
	if err != nil {
		return err
	}
	args, command, err := r.RequireCommand(cmd, app, args)
	if err != nil {
		return err
	}
	name, err := LockName(args)
	if err != nil {
		return err
	}
	if err := cmp.Or(r.check(f, name), r.Check(f)); err != nil {
		return err
	}
	client, err := r.Client(app, margin)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := cmd.Context()
	held, err := r.acquire(ctx, app, client, r.Waiting, name)
	switch {
	case errors.Is(err, lease.ErrHeld) && ctx.Err() == nil:
		return r.Conflict(err)
	case err != nil:
		return lockserver.Error(ctx, err)
	}
	return r.runUnder(ctx, client, held, (r.TTL-margin)/3, command)
}

// runUnder runs the command and releases the lease when the command has ended. A signal does not
// end the heartbeat.
func (r *runCommand) runUnder(ctx context.Context, client *leasehttp.Client, held *leasehttp.Lease, interval time.Duration, command supervise.Command) error {
	command.Env = child.WithoutLockToken(child.Env(append(append(variables(held.Claim()), shareVariables(held.Share())...), "PGLATCH_LOCK_HELD=true")...))
	keeping := context.WithoutCancel(ctx)
	return child.RunUnder(ctx, child.Right{
		Begin: func() context.Context {
			work, _ := client.StartHeartbeat(keeping, held, leasehttp.HeartbeatOptions{Interval: interval})
			return work
		},
		Release: func() error {
			err := client.ReleaseOnce(keeping, held)
			if err != nil && !lease.IsOver(err) {
				command.Logger.Warn("the lease was not released: it ends when its time is over", slog.Any("error", err))
				return nil
			}
			return err
		},
	}, command)
}
