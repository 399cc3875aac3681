// Package loadcmd contains the command load, which runs the load of package load.
package loadcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/load"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
)

const help = `Drive a lock server with many clients at once, and check while it runs that it keeps its
promises:

  - at most one client has a lease of a lock at a time;
  - the fencing tokens of a lock rise strictly;
  - a lease that is renewed in time is not lost, and an expired lease can neither be renewed
    nor released;
  - no release with an outdated claim succeeds;
  - a resource that checks tokens accepts no stale write, and refuses no current one.

Each client takes one lease after another, on a random one of --locks. It writes to the
lock's resource under its token, sometimes renews or tries to release with a wrong claim,
and then releases. Some leases are held beyond --ttl with heartbeats. Others are left to
expire; then the old holder writes, renews and releases too late.

The server is that of --server. Without it, the command runs a server in its own process, on
--store or else on a new SQLite file that it removes at the end. --locks 1 makes all clients
wait for the same lock. The first broken promise ends the run.

Exit codes: 0 all promises were kept, 69 the server cannot be used, 70 a promise was
broken.`

// A loadCommand is one use of the command load.
type loadCommand struct {
	lockserver.ClientFlags
	lockserver.StoreFlags
	target   string
	duration time.Duration
	config   load.Config
}

// New returns the command load.
func New(app *program.App, stores []lockserver.StoreKind) *cobra.Command {
	var l loadCommand
	cmd := &cobra.Command{
		Use:     "load",
		Short:   "Load a lock server with clients, and check its promises",
		Long:    help,
		Example: "  pglatch load --target lease --clients 80 --duration 20s\n  pglatch load --target lease --locks 1 --store postgres://localhost/app",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), app)
		},
	}
	f := cmd.Flags()
	l.ClientFlags.AddFlags(f)
	l.StoreFlags.AddFlags(f, stores)
	f.StringVar(&l.target, "target", "lease", "`what` to load: lease")
	program.Only(f, "target", "lease")
	f.IntVar(&l.config.Clients, "clients", 80, "clients at once")
	f.DurationVar(&l.duration, "duration", 20*time.Second, "duration of the load")
	f.IntVar(&l.config.Names, "locks", 100, "locks that the clients take")
	f.IntVar(&l.config.Names, "entities", 100, "alias of --locks")
	f.DurationVar(&l.config.TTL, "ttl", 300*time.Millisecond, "TTL of each lease")
	f.DurationVar(&l.config.Hold, "hold", 0, "hold each lease for this long at least")
	f.Float64Var(&l.config.Heartbeat, "heartbeats", 1, "`percentage` of leases held beyond their TTL")
	f.Float64Var(&l.config.Expire, "expire", 1, "`percentage` of leases left to expire")
	f.BoolVar(&l.config.Unfenced, "no-fencing", false, "make the resource accept every write, to see that the check finds it")
	cmd.MarkFlagsMutuallyExclusive("server", "store")
	return cmd
}

func (l *loadCommand) check() error {
	c := &l.config
	err := cmp.Or(
		program.AtLeastOne("clients", c.Clients), program.AtLeastOne("locks", c.Names),
		program.Positive("duration", l.duration), program.NotNegative("hold", c.Hold, ""),
	)
	switch {
	case err != nil:
		return err
	case c.TTL < lease.MinTTL || c.TTL > lease.MaxTTL:
		return program.UsageError("--ttl is %v: use %v to %v", c.TTL, lease.MinTTL, lease.MaxTTL)
	case c.Heartbeat < 0 || c.Expire < 0 || c.Heartbeat+c.Expire > 100:
		return program.UsageError("--heartbeats is %v and --expire %v: use percentages, 100 at most in all", c.Heartbeat, c.Expire)
	}
	c.Heartbeat /= 100
	c.Expire /= 100
	return nil
}

func (l *loadCommand) run(ctx context.Context, app *program.App) (err error) {
	if err := l.check(); err != nil {
		return err
	}
	client, end, err := l.server(ctx, app)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	l.config.Locks = load.OfServer(client)
	if _, err := client.Get(ctx, "load-probe"); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return lockserver.Error(ctx, err)
	}
	running, cancel := context.WithTimeout(ctx, l.duration)
	defer cancel()
	run := load.New(l.config)
	stop := showProgress(app, run, l.duration)
	report := run.Run(running)
	stop()
	if report.Err != nil {
		app.Logger().Warn("operations of unknown outcome", slog.Int("count", report.Counts.Failed), slog.Any("error", report.Err))
	}
	if err := printReport(app, report); err != nil {
		return err
	}
	switch {
	case len(report.Violations) > 0:
		return &program.ExitError{Code: program.ExitInternal, Err: fmt.Errorf("a promise was broken: %s", report.Violations[0])}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case report.Operations[load.Acquire].Count == 0:
		return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New("no lease was granted")}
	}
	return nil
}
