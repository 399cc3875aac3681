// Package child contains the common parts of commands that run another program under a lock: its
// flags, its environment, its times, and the signals that reach it.
package child

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/namespace"
)

// Flags are the flags of commands that run a child.
type Flags struct {
	shell      string
	closeStdin bool
	signal     string
	KillAfter  time.Duration
}

// AddFlags adds the flags.
func (f *Flags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&f.shell, "command", "c", "", "run this `text` with /bin/sh -c, instead of the command after --")
	flags.BoolVar(&f.closeStdin, "close-stdin", false, "give the command an empty standard input")
	flags.StringVar(&f.signal, "signal", "TERM", "`name` or number of the signal that asks the command to end")
	program.Offer(flags, "signal", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
	flags.DurationVar(&f.KillAfter, "kill-after", supervise.DefaultKillAfter, "how long the command may take to end before it is killed")
}

// Command splits the arguments at "--". It returns those before it and the command after it, or the
// command of -c. No Args = neither was given. Errors are usage errors.
func (f *Flags) Command(cmd *cobra.Command, app *program.App, args []string) ([]string, supervise.Command, error) {
	c := supervise.Command{CloseStdin: f.closeStdin, KillAfter: f.KillAfter, Logger: app.Logger()}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args, c.Args = args[:dash], args[dash:]
	}
	shell := cmd.Flags().Changed("command")
	switch {
	case shell && len(c.Args) > 0:
		return nil, c, program.UsageError("give a command after -- or with -c, not both")
	case shell:
		c.Args = []string{"/bin/sh", "-c", f.shell}
	}
	err := program.NotNegative("kill-after", f.KillAfter, ", or 0s to kill at once")
	if err != nil {
		return nil, c, err
	}
	if f.KillAfter == 0 {
		c.KillAfter = -1
	}
	if c.Signal, err = supervise.ParseSignal(f.signal); err != nil {
		return nil, c, program.UsageError("--signal: %w", err)
	}
	return args, c, nil
}

// RequireCommand is Command for those that cannot do without one.
func (f *Flags) RequireCommand(cmd *cobra.Command, app *program.App, args []string) ([]string, supervise.Command, error) {
	args, c, err := f.Command(cmd, app, args)
	if err == nil && len(c.Args) == 0 {
		err = program.UsageError("give the command to run after --, or with -c")
	}
	return args, c, err
}

// Env returns this process's environment plus variables. It removes the variables of an outer
// pglatch, which belong to another lock.
func Env(variables ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PGLATCH_LOCK_HELD", "PGLATCH_KEY", "PGLATCH_KEY1", "PGLATCH_KEY2", "PGLATCH_BACKEND_PID", "PGLATCH_TERM", "PGLATCH_FENCING_TOKEN",
			"PGLATCH_LEASE_NAME", "PGLATCH_LEASE_OWNER", "PGLATCH_LEASE_ID", "PGLATCH_FENCE", "PGLATCH_SLOT":
			return true
		}
		return false
	})
	return append(env, variables...)
}

// WithoutLockToken removes from an environment the token that grants every right on a lock server.
func WithoutLockToken(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PGLATCH_LOCK_TOKEN=") })
}

// KeyEnv returns a child's variables about the key that is held for it.
func KeyEnv(key namespace.Key) []string {
	env := []string{"PGLATCH_LOCK_HELD=true", "PGLATCH_KEY=" + key.String()}
	if k1, k2, ok := key.Tag().Pair(); ok {
		env = append(env, fmt.Sprintf("PGLATCH_KEY1=%d", k1), fmt.Sprintf("PGLATCH_KEY2=%d", k2))
	}
	return env
}
