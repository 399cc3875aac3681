package program

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Backend is one that --backend can name, of commands that make a T of it.
type Backend[T any] struct {
	Name string
	// Flags adds the flags that this backend alone has, and returns what makes a T of
	// them when they are parsed. It is called for each command.
	Flags func(*pflag.FlagSet) OpenFunc[T]
}

// An OpenFunc returns what the arguments of a command and its flags name, without I/O
// to it. Errors are of usage.
type OpenFunc[T any] func(app *App, args []string) (T, error)

// Backends is the flag --backend of one command, with the flags of each.
type Backends[T any] struct {
	name  string // that was chosen
	names []string
	open  map[string]OpenFunc[T]
	owner map[string]string // the backend that alone has a flag
}

// AddFlags adds them. The first of all is the default; what says what lives there.
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

// Own makes flags that the command has in any case the backend's alone.
func (b *Backends[T]) Own(backend string, flags ...string) {
	for _, flag := range flags {
		b.owner[flag] = backend
	}
}

// DatabaseFlags are those of every command that say which database.
func DatabaseFlags() []string {
	return []string{"database-url", "dsn", "database-url-file", "connect-timeout", "application-name"}
}

// Name is the backend that the flags name, which may not exist.
func (b *Backends[T]) Name() string { return b.name }

// Has reports whether the command has a backend of this name.
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
