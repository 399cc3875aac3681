// Package cli is the command line of pglatch: what runs a command, and the tree of all.
// A command is a function that makes a *cobra.Command, in one of the packages below,
// listed in root.go; it writes data with App.Print to stdout, tells the rest through
// App.Logger to stderr, and returns an error whose exit code program.Code finds.
package cli

import (
	"context"
	"errors"
	"os"

	"github.com/pglatch/pglatch/internal/cli/child"
	"github.com/pglatch/pglatch/internal/cli/leadercmd"
	"github.com/pglatch/pglatch/internal/cli/lockserver"
	"github.com/pglatch/pglatch/internal/cli/program"
)

// Options make a program of the commands. The zero Options make pglatch.
type Options struct {
	Program  string                 // its name; "" = pglatch
	Backends []leadercmd.Backend    // that "leader" has beside its own
	Stores   []lockserver.StoreKind // that --store can name beside those of every program
}

// Main runs the program that o makes on the arguments of the process, and returns its
// exit code.
func Main(o Options) int {
	ctx, stop := child.WithSignals(context.Background())
	defer stop()
	return Run(ctx, program.New(), o, os.Args[1:])
}

// Run runs the command that args name and returns the exit code. An error goes to
// stderr, on one line. When ctx was made by WithSignals, a command that a signal
// cut short ends with 128 and the signal's number.
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
		err = &program.ExitError{Code: program.ExitUsage, Err: err} // cobra's own: no command returned it
	}
	return app.Report(ctx, err)
}
