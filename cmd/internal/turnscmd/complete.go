package turnscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/turns"
)

// complete lets the shell complete the first argument of a command with words from the mailboxes.
func complete(app *program.App, cmd *cobra.Command, words func(context.Context, *post) []cobra.Completion) {
	cmd.ValidArgsFunction = lookup.Complete(app, func(ctx context.Context, args []string) (all []cobra.Completion) {
		if len(args) == 0 {
			_ = with(ctx, app, func(p *post) error { // the shell receives no error
				all = words(ctx, p)
				return nil
			})
		}
		return all
	})
}

func mailboxes(_ context.Context, p *post) (all []cobra.Completion) {
	for _, n := range p.names {
		all = append(all, cobra.CompletionWithDesc(n.Name, "has the keys of "+n.Namespace.Name()))
	}
	return all
}

// offered is how many keys of each state a completion offers.
const offered = 50

// keys offers the entities that are in one of some states.
func keys(states ...turns.EntityState) func(context.Context, *post) []cobra.Completion {
	return func(ctx context.Context, p *post) (words []cobra.Completion) {
		for _, n := range p.names {
			box, err := p.open(ctx, n)
			if err != nil {
				return nil
			}
			for _, state := range states {
				all, err := box.Entities(ctx, state, offered)
				if err != nil {
					return nil
				}
				for _, e := range all {
					words = append(words, cobra.CompletionWithDesc(n.Namespace.Name()+"/"+e.Entity, string(e.State)))
				}
			}
		}
		return words
	}
}
