package cli

import (
	"github.com/spf13/cobra"
)

// commands are what pglatch can do.
func commands() []func(*App) *cobra.Command {
	return []func(*App) *cobra.Command{
		newRun,
		newTry,
		newLs,
		newTree,
		newWatch,
		newStatus,
		newKey,
		newDoctor,
		newLeader,
		newServe,
		newLease,
		newLoad,
		newMigrate,
		newVersion,
	}
}

// New returns the program's command tree.
func New(app *App) *cobra.Command {
	root := &cobra.Command{
		Use:           app.options.Program,
		Short:         "PostgreSQL advisory locks, elections, and a lock server",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildVersion().Version,
	}
	root.SetIn(app.Stdin)
	root.SetOut(app.Stdout)
	root.SetErr(app.Stderr)
	app.settings.addFlags(root.PersistentFlags())
	for _, command := range commands() {
		root.AddCommand(command(app))
	}
	root.SetFlagErrorFunc(hint)
	root.InitDefaultCompletionCmd()
	app.settle(root)
	return root
}

const rootHelp = `pglatch looks at and takes PostgreSQL advisory locks, takes part in elections, and
serves leases with fencing tokens: the commands serve, lease and load need no
PostgreSQL, and no KEY.

A KEY is namespace/entity (agent/42), a pair of int4 (1:100) or a bigint (@12345),
or --key1 and --key2. Names of namespaces come from --namespace agent=1 or
PGLATCH_NAMESPACES=agent=1,order=2.

The database is that of --database-url, the file of --database-url-file,
PGLATCH_DATABASE_URL, DATABASE_URL, PG_DSN, or the PG* variables, in this order.

Exit codes: 0 success, 3 free (status, lease get), 64 usage, 69 database or lock
server unavailable, 70 internal error, a failed check (doctor) or a broken promise
(load), 75 busy, 76 lock, lease or leadership lost, 77 the database refuses the
user (a password, a missing database or right: trying again does not help),
125 own failure before the child, 126 not executable, 127 not found,
128+n ended by signal n; else the child's.`

// annotationFilter marks commands for which --namespace without a number is a filter.
const annotationFilter = "filter"

// settle makes a command check the settings before it runs, and its errors *ranErrors:
// the others are cobra's own.
func (a *App) settle(cmd *cobra.Command) {
	run := cmd.RunE
	if run == nil {
		run, cmd.Args = group, cobra.ArbitraryArgs
	} else {
		cmd.Args = checkArgs(cmd.Args)
	}
	takeSeconds(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.resolve(cmd); err != nil {
			return err
		}
		if err := run(cmd, args); err != nil {
			return &ranError{err}
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		a.settle(sub)
	}
}

// group is what a command does that only groups others. (cobra would show its help
// for a misspelt one, and succeed.)
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

// A ranError is an error that a command returned.
type ranError struct{ error }

func (e *ranError) Unwrap() error { return e.error }
