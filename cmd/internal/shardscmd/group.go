package shardscmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// A Group is the group that a command reads and changes.
type Group struct {
	name    string
	place   string // its location, for people
	backend *postgres.Backend
}

// groupFlags select the group of a command, with its first argument.
type groupFlags struct{ table string }

func (f *groupFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.table, "table", postgres.DefaultTable, "`table` that counts the terms of shards")
}

// with opens the group that the flags and the first argument name, and calls do. It expects n arguments.
func (f *groupFlags) with(app *program.App, cmd *cobra.Command, args []string, n int, do func(*Group) error) error {
	if len(args) != n || slices.Contains(args, "") {
		return program.UsageError("give %s (got %d arguments)", strings.TrimPrefix(cmd.Use, cmd.Name()+" "), len(args))
	}
	g, err := Open(app, args[0], f.table)
	if err != nil {
		return err
	}
	return do(g)
}

// Look returns the state of the group.
func (g *Group) Look(ctx context.Context) (shards.Group, error) {
	seen, err := shards.Observe(ctx, g.backend)
	return seen, g.fail(ctx, err)
}

// member returns a node that was seen, or that an operator's setting names.
func (g *Group) member(seen shards.Group, identity string) (shards.Member, error) {
	for _, m := range seen.Members {
		if m.Identity == identity {
			return m, nil
		}
	}
	return shards.Member{}, unknown("node %q in group %s: it has %s", identity, g.name, some(seen.Members, func(m shards.Member) string { return m.Identity }))
}

// unknown returns the error for something that does not exist.
func unknown(format string, args ...any) error {
	return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("there is no "+format, args...)}
}

// some lists the first of several, for people.
func some[T any](all []T, name func(T) string) string {
	const most = 5
	texts := make([]string, 0, most)
	for _, one := range all[:min(most, len(all))] {
		texts = append(texts, program.Printable(name(one)))
	}
	switch more := len(all) - most; {
	case len(all) == 0:
		return "none"
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(texts, ", "), more)
	}
	return strings.Join(texts, ", ")
}
