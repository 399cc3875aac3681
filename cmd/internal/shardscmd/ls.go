package shardscmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards"
)

// A filter selects the shards to show.
type filter struct {
	node    string
	prefix  string
	unowned bool
	nodes   bool
}

func (f *filter) keeps(s shards.Seen) bool {
	return strings.HasPrefix(s.Name, f.prefix) && (f.node == "" || s.Owner == f.node || s.Pin == f.node) && (!f.unowned || s.Owner == "")
}

func newLs(app *program.App) *cobra.Command {
	var flags groupFlags
	var f filter
	cmd := &cobra.Command{
		Use:        "ls GROUP",
		Short:      "List nodes and shards: which node owns which; exit code 3 if a shard has no owner",
		SuggestFor: []string{"list", "status"},
		Long: `List the nodes of a group, and its shards with their owners.

FAIR is how many shards a node should own once the group is stable. A node is "draining" if
it is giving up its shards, and "away" if it takes no part now. The group's table knows
only shards that were owned before. A shard that no node has owned yet is not listed, but
counts as missing.

Exit codes: 0 every known shard has an owner; 3 a known shard has none, the nodes' list has a
shard that was never owned, or nothing is known of the group, as in a database without its
tables. While nodes have different lists, as during a deploy, only shards that were owned
before are known. --node, --prefix and --unowned choose what is shown, and do not change
the exit code.`,
		Example: `  pglatch shards ls tenants
  pglatch shards ls tenants --node web-3 --prefix eu-
  pglatch shards ls tenants --unowned
  pglatch shards ls tenants --nodes -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.with(app, cmd, args, 1, func(g *Group) error {
				seen, err := g.Look(cmd.Context())
				if err != nil {
					return err
				}
				if f.node != "" {
					if _, err := g.member(seen, f.node); err != nil {
						return err
					}
				}
				if err := app.Print(newListing(g.name, seen, &f).output(app)); err != nil {
					return err
				}
				if several(seen) {
					app.Logger().Warn("the nodes have different lists: a shard that was never owned is not known")
				}
				return g.whole(seen)
			})
		},
	}
	flags.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&f.node, "node", "", "only shards that this `node` owns, or that are pinned to it")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only shards that begin with this `text`")
	cmd.Flags().BoolVar(&f.unowned, "unowned", false, "only shards without an owner")
	cmd.Flags().BoolVar(&f.nodes, "nodes", false, "only the nodes")
	flags.complete(app, cmd)
	_ = cmd.RegisterFlagCompletionFunc("node", lookup.Complete(app, func(ctx context.Context, args []string) []cobra.Completion { // it is registered only once
		if len(args) == 0 {
			return nil
		}
		return flags.words(ctx, app, args[0], nodes)
	}))
	return cmd
}

// several reports whether nodes have different lists.
func several(seen shards.Group) bool {
	lists := map[uint64]bool{}
	for _, m := range seen.Members {
		if !m.Away {
			lists[m.List] = true
		}
	}
	return len(lists) > 1
}

// whole returns an error of exit code 3 unless every known shard is owned.
func (g *Group) whole(seen shards.Group) error {
	free := len(seen.Shards) - seen.Owned()
	there := slices.ContainsFunc(seen.Members, func(m shards.Member) bool { return !m.Away })
	var err error
	switch {
	case len(seen.Members) == 0 && len(seen.Shards) == 0:
		err = fmt.Errorf("nothing is known of a group %q in %s: no node takes part, and no shard was ever owned", g.name, g.place)
	case !there:
		err = fmt.Errorf("no node takes part: nobody owns %d of %d shards", free, len(seen.Shards))
	case free > 0:
		err = fmt.Errorf("nobody owns %d of %d shards", free, len(seen.Shards))
	case !seen.Certain && !several(seen):
		err = fmt.Errorf("it is not certain that all is owned: the nodes have a list with a shard that nobody owned yet")
	default:
		return nil
	}
	return &program.ExitError{Code: program.ExitFree, Err: err}
}
