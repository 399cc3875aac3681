// Package program contains the common parts of all commands: the settings, the output formats, the database and the key
// that they name, and the exit codes, in one table.
package program

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/namespace"
)

// An App is one run of the program: the settings that all commands share. They are valid inside a command's RunE, not
// before. Data goes to os.Stdout. pglatch's own messages go through Logger and errors, which remove passwords.
type App struct {
	Program string // its name, as a prefix of errors

	command    *cobra.Command // the running command
	settings   settings
	key1, key2 int32
	redactor   *redactor
	logger     *slog.Logger
	namespaces *namespace.Set
	connConfig *pgx.ConnConfig // nil until ConnConfig is called
}

// New returns an App.
func New() *App {
	return &App{Program: "pglatch", redactor: &redactor{to: os.Stderr}, logger: slog.New(slog.DiscardHandler)}
}

// Report writes err to stderr, on one line, and returns its exit code. If a signal ended ctx, which WithSignals made,
// the signal has precedence over errors that follow from it.
func (a *App) Report(ctx context.Context, err error) int {
	err = a.unreached(interruption(ctx, err))
	if text := message(err); text != "" {
		_, _ = fmt.Fprintf(a.redactor, "%s: %s\n", a.Program, text)
	}
	return Code(err)
}

// Logger returns the logger to stderr.
func (a *App) Logger() *slog.Logger { return a.logger }

// Silence discards all later log output.
func (a *App) Silence() { a.logger = slog.New(slog.DiscardHandler) }

// Namespaces returns the namespaces of --namespace or PGLATCH_NAMESPACES, and Plain.
func (a *App) Namespaces() *namespace.Set { return a.namespaces }

// OneLine joins text of several lines, such as errors of pgx, into one. It merges equal lines: pgx tries an address
// with TLS and without.
func OneLine(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.TrimSpace(strings.Join(slices.Compact(lines), " "))
}
