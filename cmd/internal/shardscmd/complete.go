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
	cmd.ValidArgsFunction = lookup.Complete(app, func(ctx context.Context, args []string) []cobra.Completion {
		if len(args) == 0 || len(args) > len(after) {
			return nil
		}
		return f.words(ctx, app, args[0], after[len(args)-1])
	})
}

// words returns the words for a group.
func (f *groupFlags) words(ctx context.Context, app *program.App, group string, all offer) []cobra.Completion {
	g, err := Open(app, group, f.table)
	if err != nil {
		return nil // the shell receives no error
	}
	seen, err := g.Look(ctx)
	if err != nil {
		return nil
	}
	return all(seen)
}
