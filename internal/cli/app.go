// Package cli has the commands of the program pglatch. A command is a function
// that makes a *cobra.Command, listed in root.go; it writes data with App.Print
// to stdout, tells the rest through App.Logger to stderr, and returns an error
// whose exit code Code finds.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/namespace"
)

// Options make a program of the commands. The zero Options make pglatch.
type Options struct {
	Program  string    // its name; "" = pglatch
	Backends []Backend // that "leader" has beside its own
}

// An App is one run of the program: its streams, its environment and the settings
// that all commands share. The settings are valid inside a command's RunE, not before.
type App struct {
	Stdin  io.Reader
	Stdout io.Writer // data
	// Stderr is the raw stream, for children. What pglatch itself has to say goes
	// through Logger and errors, from which passwords are taken out.
	Stderr io.Writer
	Getenv func(string) string // of pglatch's own variables; pgx reads PG* itself

	options    Options
	command    *cobra.Command // that runs
	settings   settings
	key1, key2 int32
	redactor   *redactor
	logger     *slog.Logger
	namespaces *namespace.Set
	connConfig *pgx.ConnConfig // nil until ConnConfig was called
}

// NewApp returns an App on the streams and the environment of the process.
func NewApp(o Options) *App {
	o.Program = cmp.Or(o.Program, "pglatch")
	return &App{
		options: o,
		Stdin:   os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		redactor: &redactor{to: os.Stderr}, logger: slog.New(slog.DiscardHandler),
	}
}

// Main runs the program that o makes on the arguments of the process, and returns its
// exit code.
func Main(o Options) int {
	ctx, stop := WithSignals(context.Background())
	defer stop()
	return Run(ctx, NewApp(o), os.Args[1:])
}

// Run runs the command that args name and returns the exit code. An error goes to
// stderr, on one line. When ctx was made by WithSignals, a command that a signal
// cut short ends with 128 and the signal's number.
func Run(ctx context.Context, app *App, args []string) int {
	root := New(app)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var ran *ranError
	var exit *ExitError
	if !errors.As(err, &ran) && !errors.As(err, &exit) {
		err = &ExitError{ExitUsage, err} // cobra's own: no command returned it
	}
	err = interruption(ctx, err)
	if text := message(err); text != "" {
		_, _ = fmt.Fprintf(app.redactor, "%s: %s\n", app.options.Program, text)
	}
	return Code(err)
}

// Logger returns the logger to stderr.
func (a *App) Logger() *slog.Logger { return a.logger }

// Namespaces returns the namespaces of --namespace or PGLATCH_NAMESPACES.
func (a *App) Namespaces() *namespace.Set { return a.namespaces }

// oneLine makes one line of text that has several, as errors of pgx have.
func oneLine(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.TrimSpace(strings.Join(lines, " "))
}
