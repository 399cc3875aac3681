package program

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Backend is a backend for --backend, in commands that make a T from it.
type Backend[T any] struct {
	Name string
	// Flags adds the flags that only this backend has. It returns the function that makes a T from
	// them after parsing. It is called for each command.
	Flags func(*pflag.FlagSet) OpenFunc[T]
}

// An OpenFunc returns what a command's arguments and flags name, without contacting it. Errors are
// usage errors.
type OpenFunc[T any] func(app *App, args []string) (T, error)

// Backends is the flag --backend of one command, with the flags of each.
type Backends[T any] struct {
	name  string // the chosen one
	names []string
	open  map[string]OpenFunc[T]
	owner map[string]string // the backend that owns a flag
}

// AddFlags adds the flags. The first backend is the default. what completes the usage of --backend,
// as in "leadership lives".
func (b *Backends[T]) AddFlags(cmd *cobra.Command, what string, all []Backend[T]) {
	b.open, b.owner = make(map[string]OpenFunc[T]), make(map[string]string)
	for _, backend := range all {
		b.names = append(b.names, backend.Name)
		own := pflag.NewFlagSet(backend.Name, pflag.ContinueOnError)
		b.open[backend.Name] = backend.Flags(own)
		own.VisitAll(func(flag *pflag.Flag) {
			flag.Usage = backend.Name + ": " + flag.Usage
			b.owner[flag.Name] = backend.Name
		})
		cmd.Flags().AddFlagSet(own)
	}
	cmd.Flags().StringVar(&b.name, "backend", b.names[0], "`where` "+what+": "+strings.Join(b.names, ", "))
}

// Own restricts existing flags of the command to this backend.
func (b *Backends[T]) Own(backend string, flags ...string) {
	for _, flag := range flags {
		b.owner[flag] = backend
	}
}

// DatabaseFlags returns the flags of every command that select a database.
func DatabaseFlags() []string {
	return []string{"database-url", "dsn", "database-url-file", "connect-timeout", "application-name"}
}

// Name returns the backend that the flags name; it may not exist.
func (b *Backends[T]) Name() string { return b.name }

// Has reports whether the command has a backend with this name.
func (b *Backends[T]) Has(name string) bool { return b.open[name] != nil }

// Open returns what the flags and the arguments name.
func (b *Backends[T]) Open(app *App, cmd *cobra.Command, args []string) (none T, err error) {
	open, known := b.open[b.name]
	if !known {
		return none, UsageError("--backend is %q: use one of %s", b.name, strings.Join(b.names, ", "))
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if owner := b.owner[flag.Name]; err == nil && owner != "" && owner != b.name {
			err = UsageError("--%s is for --backend %s: leave it out with --backend %s", flag.Name, owner, b.name)
		}
	})
	if err != nil {
		return none, err
	}
	return open(app, args)
}
