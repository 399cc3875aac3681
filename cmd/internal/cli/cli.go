// Package cli is the command line of pglatch: it runs a command, and has the tree of all commands.
// A command is a function that returns a *cobra.Command. It is in one of the packages below, and
// listed in root.go. It writes data with App.Print to stdout, and messages with App.Logger to
// stderr. It returns an error whose exit code program.Code finds.
package cli

import (
	"context"
	"errors"
	"os"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/leadercmd"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// Options configure a program that consists of the commands. The zero Options are pglatch.
type Options struct {
	Program  string                 // its name; "" = pglatch
	Backends []leadercmd.Backend    // for "leader", in addition to its own
	Stores   []lockserver.StoreKind // for --store, in addition to those of every program
}

// Main runs the program for o on the arguments of the process, and returns its exit code.
func Main(o Options) int {
	ctx, stop := child.WithSignals(context.Background())
	defer stop()
	return Run(ctx, program.New(), o, os.Args[1:])
}

// Run runs the command that args name and returns the exit code. An error goes to stderr, on one
// line. If ctx comes from WithSignals, a command that a signal cut short ends with 128 plus the
// signal's number.
func Run(ctx context.Context, app *program.App, o Options, args []string) int {
	root := New(app, o)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return program.ExitOK
	}
	var ran *ranError
	var exit *program.ExitError
	if !errors.As(err, &ran) && !errors.As(err, &exit) {
		err = program.UsageError("%w", err) // cobra's own: no command returned it
	}
	return app.Report(ctx, err)
}
