package lockcmd

import (
	"cmp"
	"context"
	"strconv"

	"github.com/pglatch/pglatch/internal/session"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

const runHelp = `Run a command while a lock is held, and exit with its exit code.

The command runs in its own process group. pglatch passes on the signals INT, TERM, HUP,
QUIT, USR1 and USR2; a second INT kills the group. When the command has ended, pglatch ends
whatever is left in its group, such as background jobs, and then releases the lock. A
daemon that should survive must leave the group (setsid).

If the lock is lost, the group gets --signal and, after --kill-after, KILL. If the loss is
because the server stopped answering, the group is dead before --session-ttl has passed,
when the server gives the lock to the next holder. If the server itself ended the session,
the next holder can start before the group is dead. If pglatch is killed with KILL, the
kernel kills the command (on Linux), but not the command's own children.

The command's environment has:
  PGLATCH_LOCK_HELD=true, PGLATCH_KEY, PGLATCH_BACKEND_PID,
  PGLATCH_KEY1 and PGLATCH_KEY2 if the key is a pair.

Other people can ask for the lock (pglatch ask). With --on-ask=term, a request sends TERM to
the command, as if pglatch had received TERM.

Exit codes: the command's own, or 128+n if signal n ended it; 75 (or -E) another holder has
the lock, 76 the lock was lost, 130 or 143 a signal ended the wait, 69 the database is
unavailable, 77 the database refuses the user or does not exist, 125 the command was not
started, 126 it is not executable, 127 it was not found.`

// A runCommand is one use of the command run.
type runCommand struct {
	taking
	child.Flags
	onLost string
	onAsk  string
}

// NewRun returns the command run.
func NewRun(app *program.App) *cobra.Command {
	var r runCommand
	cmd := &cobra.Command{
		Use:        "run KEY -- COMMAND [ARGUMENT...]",
		Short:      "Run a command under a lock",
		SuggestFor: []string{"lock", "exec", "with"},
		Long:       runHelp,
		Example:    "  pglatch run 1:42 -- make deploy\n  pglatch run -n --namespace order=2 order/9f3c -c 'bill && ship'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd, app, args)
		},
	}
	app.AddKeyFlags(cmd)
	r.addFlags(cmd)
	return cmd
}

func (r *runCommand) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	r.taking.addFlags(f)
	r.Flags.AddFlags(f)
	child.DescribeKillAfter(f, "session-ttl")
	r.Waiting.AddFlags(cmd, "connecting included")
	f.StringVar(&r.onLost, "on-lost", "kill", "what to do when the lock is lost: kill the command, or warn and let it continue")
	program.Only(f, "on-lost", "kill", "warn")
	f.StringVar(&r.onAsk, "on-ask", "ignore", `what to do when "pglatch ask" asks for the lock: ignore (refuse the request), or term (send the command TERM)`)
	program.Only(f, "on-ask", "ignore", "term")
}

// run takes the lock and runs the command under it.
func (r *runCommand) run(cmd *cobra.Command, app *program.App, args []string) error {
	if err := r.fit(cmd.Flags()); err != nil {
		return err
	}
	args, command, err := r.RequireCommand(cmd, app, args)
	if err != nil {
		return err
	}
	key, err := app.Key(args)
	if err != nil {
		return err
	}
	if err := r.Check(cmd.Flags()); err != nil {
		return err
	}
	r.answer.AllowAsk = r.onAsk == "term"
	ctx := cmd.Context()
	locker, err := openLocker(ctx, app, &r.taking)
	if err != nil {
		return err
	}
	defer locker.Close()
	lock, err := take(ctx, app, &r.taking, locker, key)
	if err != nil {
		return err
	}
	return r.runUnder(ctx, lock, command)
}

// fit makes the lock's context end early enough that the command is gone when the server can grant
// the lock to another. If that is impossible, the error names the flags.
//
//	├─ pings ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0  context ends, --signal     KILL        gone   --session-ttl
func (r *runCommand) fit(flags *pflag.FlagSet) error {
	ttl := cmp.Or(r.sessionTTL, session.DefaultTTL)
	signals, most := child.SignalTime(ttl), session.MaxLossDrain(ttl)
	if !flags.Changed("kill-after") {
		r.KillAfter = max(min(child.DefaultKillAfter(ttl), most-signals), 0)
	}
	if r.onLost == "warn" { // the command must continue
		return nil
	}
	r.lossDrain = r.KillAfter + signals
	if r.lossDrain > most && ttl >= session.MinTTL {
		return program.UsageError("--kill-after %v + %v for the signals to act = %v, which must be %v at most with --session-ttl %v, "+
			"or the command can go on when another has the lock: shorten --kill-after, or lengthen --session-ttl", r.KillAfter, signals, r.lossDrain, most, ttl)
	}
	return nil
}

// runUnder runs the command and releases the lock when the command has ended.
func (r *runCommand) runUnder(ctx context.Context, lock *advisory.Lock, command supervise.Command) error {
	right := child.Right{Begin: lock.Context, Release: lock.Release}
	if r.onAsk == "term" {
		right.Asked = lock.Asked()
	}
	if r.onLost == "warn" {
		right.Begin = func() context.Context { return context.WithoutCancel(ctx) }
		right.Release = func() error { _ = lock.Release(); return nil }
	}
	command.Env = lockEnv(lock)
	return child.RunUnder(ctx, right, command)
}

// lockEnv is the environment of a command under a lock.
func lockEnv(lock *advisory.Lock) []string {
	env := append(child.KeyEnv(lock.Key()), "PGLATCH_BACKEND_PID="+strconv.FormatUint(uint64(lock.PID()), 10))
	return child.Env(env...)
}
