package leadercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
	lockslog "github.com/pglatch/pglatch/observe/slog"
)

const runHelp = `Take part in an election until interrupted, and log every transition. A follower attempts to
lead again and again; only its first attempt is logged.

The begin and end of each leadership are logged as work_began and work_ended. With
--log-format json, "pglatch leader verify" proves from these lines that work of two terms
never overlapped.

With a command: run it only while this node leads. When leadership is lost, the command's
process group gets --signal and, after --kill-after, KILL. When this node leads again, the
command runs again. If the command ends while this node leads, --restart decides what
happens next.

If the backend stops answering, the node ends its command in time: KILL comes before the
lease expires and another node can lead. The node refuses settings that make this
impossible. If the backend itself ends the session, as a restart of the server does, another
node can lead at once. To keep the next command from starting before the old one is dead,
set --settle-delay to --kill-after plus one second, on all nodes.

INT and TERM are passed on to the command. If it is still running after --drain-timeout, its
group gets --signal and, after --kill-after, KILL. This node leads until the group is dead.

The command's environment has:
  PGLATCH_LOCK_HELD=true, PGLATCH_KEY (NAME), PGLATCH_KEY1 and PGLATCH_KEY2 if the key
  is a pair, PGLATCH_TERM (era.n) and PGLATCH_FENCING_TOKEN (the term as one integer).

On postgres the nodes count terms in a table that "pglatch migrate" or --create-table
creates. If the table is missing, a node reports it, repeats that each minute, and waits
for the table; with --no-auto-reacquire it exits with 69.

While the database cannot be reached, a node logs the reason, and repeats it each minute. If
no setting names a database and this host runs none, it exits at once with 69.

Exit codes: without a command 0 after an interrupt; with a command its own, or 128+n if
signal n ended it. 76 leadership was lost and --no-auto-reacquire given, 125 the
command was not started, 126 it is not executable, 127 it was not found.

If the first attempt fails with a permanent error, such as a wrong password or a missing
right, the node exits with 64 for a flag, 77 if the database refuses the user, and 69
otherwise. With --keep-trying it retries. After the first attempt it always retries.`

// A runCommand is one use of the command leader run.
type runCommand struct {
	electionFlags
	child.Flags
	config         leader.Config
	base, longest  time.Duration // of the retries
	noReacquire    bool
	http           string
	restart        string
	restartBackoff time.Duration
}

func newRun(app *program.App, more []Backend) *cobra.Command {
	var r runCommand
	cmd := &cobra.Command{
		Use:     "run NAME [-- COMMAND [ARGUMENT...]]",
		Short:   "Take part in an election; run a command while leading",
		Long:    runHelp,
		Example: "  pglatch leader run 100:1\n  pglatch leader run 100:1 --http 127.0.0.1:8080 -- ./scheduler\n  pglatch leader run nightly --backend file --file /var/lib/app/leader.json -- ./nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd, app, args)
		},
	}
	r.electionFlags.addFlags(app, cmd, more)
	r.addFlags(cmd.Flags())
	return cmd
}

func (r *runCommand) addFlags(f *pflag.FlagSet) {
	r.Flags.AddFlags(f)
	f.BoolVar(&r.postgres.create, "create-table", false, "postgres: create the table of terms if it is missing")
	f.DurationVar(&r.postgres.guardTimeout, "guard-timeout", 0, "postgres: how long a takeover waits for guarded transactions of earlier terms before it ends them; negative = without a limit (default: the lease)")
	f.BoolVar(&r.postgres.allowResign, "allow-resign", false, `postgres: resign when "pglatch leader resign" asks for it: the command is ended, and another node leads`)
	f.StringVar(&r.config.Identity, "id", "", "this node's identity (default: host name and a random suffix)")
	child.DescribeKillAfter(f, "lease-duration")
	f.DurationVar(&r.config.LeaseDuration, "lease-duration", driver.DefaultLeaseDuration, "how long an unreachable leader keeps others from leading")
	f.DurationVar(&r.config.RenewInterval, "health-interval", 0, "time between renewals (default: a third of the lease)")
	f.DurationVar(&r.config.RenewTimeout, "renew-timeout", 0, "bound for one renewal or attempt (default: a third of the lease)")
	f.DurationVar(&r.base, "retry-base", 0, "first delay between attempts, doubled up to --retry-max (default: 2s, fixed)")
	f.DurationVar(&r.longest, "retry-max", 30*time.Second, "longest delay between attempts, with --retry-base")
	f.DurationVar(&r.config.ReconnectGrace, "reconnect-grace", 0, "how long to try to recover lost leadership before the loss is reported")
	f.DurationVar(&r.config.DrainTimeout, "drain-timeout", 30*time.Second, "how long the command may take to end after INT or TERM")
	f.DurationVar(&r.config.SettleDelay, "settle-delay", 0, "how long a new leader waits after one that did not end in order")
	f.BoolVar(&r.config.KeepTrying, "keep-trying", false, "retry after permanent errors too, such as a missing right (default: end after the first)")
	f.BoolVar(&r.noReacquire, "no-auto-reacquire", false, "end after leadership was lost, or an attempt failed with an error")
	f.StringVar(&r.http, "http", "", "serve /leader, /readyz, /livez and /metrics at this `address`")
	f.StringVar(&r.restart, "restart", "never", "when to restart a command that ended while leading: always, on-failure or never")
	program.Only(f, "restart", "always", "on-failure", "never")
	f.DurationVar(&r.restartBackoff, "restart-delay", time.Second, "pause before a restart")
}

func (r *runCommand) run(cmd *cobra.Command, app *program.App, args []string) error {
	r.postgres.await = true
	_, r.KillAfter, _ = r.times(cmd.Flags(), r.config.LeaseDuration)
	args, command, err := r.Command(cmd, app, args)
	if err != nil {
		return err
	}
	if command.Args != nil {
		command.Drain = cmp.Or(r.config.DrainTimeout, -1)
		if err := r.fit(cmd.Flags()); err != nil {
			return err
		}
	}
	election, err := r.election(app, cmd, args)
	if err != nil {
		return err
	}
	defer election.close()
	ctx := cmd.Context()
	if election.key != nil && !r.config.KeepTrying {
		if err := app.TryUnnamed(ctx); err != nil {
			return err
		}
	}
	counted := newMetrics(election.Name)
	elector, err := r.elector(app, election, counted.callbacks(), command.Args == nil)
	if err != nil {
		return program.ElectionError(err)
	}
	stopServing, err := serveLeader(ctx, app, r.http, elector, counted)
	if err != nil {
		return err
	}
	defer stopServing()
	if command.Args == nil {
		return program.ElectionError(interrupted(ctx, elector.Run(ctx, lockslog.Work(app.Logger(), elector, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}))))
	}
	return program.ElectionError((&ledCommand{runCommand: r, app: app, election: election, command: command, elector: elector}).run(ctx))
}

// interrupted treats an interrupt as the requested end. A command that cannot be started is an error.
func interrupted(ctx context.Context, err error) error {
	if misuse, ok := errors.AsType[*program.ExitError](context.Cause(ctx)); ok {
		return misuse
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// elector returns the Elector, which logs why it does not lead and, if attempts is set, a follower's
// first attempt.
func (r *runCommand) elector(app *program.App, election *Election, callbacks leader.Callbacks, attempts bool) (e *leader.Elector, err error) {
	c := r.config
	c.Name, c.Backend, c.Logger, c.Callbacks = election.Name, election.Backend, app.Logger(), callbacks
	if attempts {
		var log attemptLog
		c.Callbacks.OnStateChange = func(from, to leader.State) { log.transition(e.Logger(nil), from, to) }
	}
	if r.base > 0 {
		c.Retry = backoff.Exponential{Base: r.base, Max: r.longest}
	}
	c.LeadOnce = r.noReacquire
	e, err = leader.New(c)
	return e, err
}

// A ledCommand is a command that runs while the node leads.
type ledCommand struct {
	*runCommand
	app      *program.App
	election *Election
	command  supervise.Command
	elector  *leader.Elector

	mu      sync.Mutex
	running bool // the command receives the signals
	code    int  // its last exit code
}

// run returns when the command has ended permanently. While the command runs, it handles the signals;
// otherwise a signal ends the candidacy.
func (l *ledCommand) run(ctx context.Context) error {
	candidacy, withdraw := context.WithCancelCause(context.WithoutCancel(ctx))
	defer withdraw(nil)
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.running {
			withdraw(context.Cause(ctx))
		}
	})()
	err := l.elector.Run(candidacy, func(work context.Context) error {
		err := l.logged(ctx, work)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running = false
		switch { // also if leadership ended meanwhile; the Elector would then continue
		case ctx.Err() != nil:
			withdraw(context.Cause(ctx))
		case err != nil:
			withdraw(err)
		}
		return err
	})
	switch err = interrupted(candidacy, err); {
	case err != nil && !errors.Is(err, errDone):
		return err
	case l.code != 0:
		return &program.ExitError{Code: l.code}
	}
	return nil
}

// errDone ends the candidacy: the command must not run again.
var errDone = errors.New("done")

// logged is whileLeading with records of its begin and end. It does not record errDone as an error.
func (l *ledCommand) logged(ctx, work context.Context) error {
	done := false
	err := lockslog.Work(l.app.Logger(), l.elector, func(work context.Context) error {
		err := l.whileLeading(ctx, work)
		if done = errors.Is(err, errDone); done {
			return nil
		}
		return err
	})(work)
	if done {
		return errDone
	}
	return err
}

// whileLeading runs the command until leadership ends, or the command has ended permanently.
func (l *ledCommand) whileLeading(ctx, work context.Context) error {
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	signals, stop := child.Listen(ctx)
	defer stop()
	command := l.command
	command.Signals = signals
	command.Env = l.env(leader.TermOfContext(work))
	for ctx.Err() == nil {
		result, err := child.Run(work, command)
		l.code = result.ExitCode
		_, notStarted := errors.AsType[*program.ExitError](err)
		switch {
		case notStarted:
			return err
		case err != nil || result.Stopped:
			l.code = 0
			return nil // leadership ended; work's context reports that
		case result.Interrupted != 0, l.restart == "never", l.restart == "on-failure" && result.ExitCode == 0:
			return errDone
		}
		l.app.Logger().Warn("the command ended: running it again", slog.Int("exit_code", result.ExitCode))
		select {
		case <-time.After(l.restartBackoff):
		case <-work.Done():
			return nil
		case <-ctx.Done():
		}
	}
	return errDone
}

func (l *ledCommand) env(term leader.Term) []string {
	env := append(l.election.env(), "PGLATCH_TERM="+term.String())
	if !term.IsZero() {
		env = append(env, fmt.Sprintf("PGLATCH_FENCING_TOKEN=%d", term.Uint64()))
	}
	return child.WithoutLockToken(child.Env(env...))
}
