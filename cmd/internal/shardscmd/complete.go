package shardscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards"
)

// An offer returns the words for a completion, from the state of a group.
type offer func(shards.Group) []cobra.Completion

func nodes(g shards.Group) (all []cobra.Completion) {
	for _, m := range g.Members {
		text := fmt.Sprintf("owns %d", m.Owned)
		if m.Away {
			text = "away"
		}
		all = append(all, cobra.CompletionWithDesc(m.Identity, text))
	}
	return all
}

func names(g shards.Group) (all []cobra.Completion) {
	for _, s := range g.Shards {
		text := "nobody owns it"
		if s.Owner != "" {
			text = "owned by " + s.Owner
		}
		all = append(all, cobra.CompletionWithDesc(s.Name, text))
	}
	return all
}

// complete lets the shell complete the arguments after the group.
func (f *groupFlags) complete(app *program.App, cmd *cobra.Command, after ...offer) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 || len(args) > len(after) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.completion(app, cmd, after[len(args)-1])(cmd, args, typed)
	}
}

// completion offers words for the group that the first argument names.
func (f *groupFlags) completion(app *program.App, _ *cobra.Command, all offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var words []cobra.Completion
		if len(args) > 0 {
			lookup.Glance(cmd, app, func(ctx context.Context) {
				_ = f.with(app, cmd, args[:1], 1, func(g *Group) error {
					seen, err := g.Look(ctx)
					if err == nil {
						words = lookup.BeginningWith(typed, all(seen))
					}
					return err
				})
			})
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
