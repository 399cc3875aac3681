package leadercmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
)

func newResign(app *program.App) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "resign KEY",
		Short: "Ask the leader to let another node lead",
		Long: `Ask the leader of an election on postgres to resign: its work is drained, then another
candidate leads. A program allows this with Config.Answer.AllowResign, and "pglatch leader
run" with --allow-resign.

With --to, the other candidates stand back until the named one leads. If no candidate has
that name, the request is refused and nobody resigns. If the named candidate exists but does
not answer, because it is stopped or cut off, any other may lead next, and the output says so.

Exit codes: 0 the leader accepted the request, 3 nobody leads, 69 the leader does not answer
(it is stopped, cut off, or not a program that answers), 77 it refuses, 64 a node leads, but
no candidate has the name of --to.`,
		Example: "  pglatch leader resign 100:1\n  pglatch leader resign order/nightly --to web-3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" && cmd.Flags().Changed("to") {
				return program.UsageError("--to is empty: name a candidate, or leave it out, and any of them may lead next")
			}
			return lookup.Request(cmd.Context(), app, args, introspect.Request{Kind: introspect.AskResign, To: to})
		},
	}
	app.AddKeyFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "identity of the `node` that leads next, if it can")
	_ = cmd.RegisterFlagCompletionFunc("to", lookup.CompleteNode(app))
	return cmd
}
