package cli

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/doctorcmd"
	"github.com/pglatch/pglatch/cmd/internal/leadercmd"
	"github.com/pglatch/pglatch/cmd/internal/leasecmd"
	"github.com/pglatch/pglatch/cmd/internal/loadcmd"
	"github.com/pglatch/pglatch/cmd/internal/lockcmd"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/servecmd"
	"github.com/pglatch/pglatch/cmd/internal/shardscmd"
	"github.com/pglatch/pglatch/cmd/internal/turnscmd"
)

// commands are the commands of pglatch.
func commands(app *program.App, o Options) []*cobra.Command {
	return []*cobra.Command{
		lockcmd.NewRun(app),
		lockcmd.NewTry(app),
		lockcmd.NewLs(app),
		lockcmd.NewTree(app),
		lockcmd.NewWatch(app),
		lockcmd.NewVerdicts(app),
		lockcmd.NewStatus(app),
		lockcmd.NewAsk(app),
		lockcmd.NewDump(app),
		lockcmd.NewTerminate(app),
		lockcmd.NewKey(app),
		doctorcmd.New(app),
		leadercmd.New(app, o.Backends),
		shardscmd.New(app),
		turnscmd.New(app),
		servecmd.New(app, o.Stores),
		leasecmd.New(app),
		loadcmd.New(app, o.Stores),
		leadercmd.NewMigrate(app),
		newVersion(app),
	}
}

// New returns the program's command tree.
func New(app *program.App, o Options) *cobra.Command {
	app.Program = cmp.Or(o.Program, app.Program)
	root := &cobra.Command{
		Use:           app.Program,
		Short:         "PostgreSQL advisory locks, elections, and a lock server",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildVersion().Version,
	}
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	app.AddFlags(root.PersistentFlags())
	root.AddCommand(commands(app, o)...)
	root.SetFlagErrorFunc(hint)
	root.InitDefaultCompletionCmd()
	complete(app, root)
	settle(app, root)
	return root
}

const rootHelp = `pglatch inspects and takes PostgreSQL advisory locks, takes part in elections, and serves
leases with fencing tokens. The commands serve, lease and load need neither PostgreSQL nor a
KEY.

A KEY is a name (nightly-report), namespace/entity (agent/42), a pair of int4 (1:100),
a bigint (@12345), or --key1 and --key2. A name is an entity of the namespace name=32767,
in every program that uses pglatch; commands print it as name/nightly-report. Names of
namespaces come from --namespace agent=1 or PGLATCH_NAMESPACES=agent=1,order=2. Commands that
only look, and take no lock, also learn names from running processes.

The database is that of --database-url, the file of --database-url-file,
PGLATCH_DATABASE_URL, DATABASE_URL, PG_DSN, or the PG* variables, in this order.

Exit codes:
  0   success
  3   free (status, ask, lease get); a shard has no owner, or no such group, node or shard
      (shards); no such mailbox, turn or dead letter (turns); something is wrong
      (verdicts --exit-code)
  64  wrong usage
  69  the database, lock server or holder (ask) is unavailable, or tables did not answer
      (verdicts --exit-code)
  70  an internal error, a failed check (doctor) or a broken promise (load)
  75  busy
  76  the lock, lease or leadership was lost
  77  refused: the database refuses the user (password, database or right: a retry fails), the
      lock server refuses the token, or the holder refuses the request
  125 pglatch failed before it started the command, 126 it is not executable, 127 not found
  128+n signal n ended the command; otherwise the command's own exit code`

// settle makes a command check the settings before it runs, and turns its errors into *ranErrors;
// other errors are cobra's own.
func settle(app *program.App, cmd *cobra.Command) {
	run := cmd.RunE
	if run == nil {
		run, cmd.Args = group, cobra.ArbitraryArgs
	} else {
		cmd.Args = checkArgs(cmd.Args)
	}
	takeSeconds(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Resolve(cmd); err != nil {
			return err
		}
		if err := run(cmd, args); err != nil {
			return &ranError{err}
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		settle(app, sub)
	}
}

// group runs a command that only groups others. (cobra would show its help for a misspelt one, and
// succeed.)
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

// A ranError is an error that a command returned.
type ranError struct{ error }

func (e *ranError) Unwrap() error { return e.error }
