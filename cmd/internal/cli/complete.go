package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// complete lets the shell complete keys, sessions and the values of flags.
func complete(app *program.App, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if list := program.Offered(f); list != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)) // it is registered only once
		}
		if f.Name == "namespace" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, lookup.CompleteNamespace(app))
		}
	})
	switch {
	case cmd.ValidArgsFunction != nil:
	case cmd.Name() == "terminate":
		cmd.ValidArgsFunction = lookup.CompletePID(app)
	case cmd.Name() == "ls", cmd.Flags().Lookup("key1") != nil:
		cmd.ValidArgsFunction = lookup.CompleteKey(app)
	}
	for _, sub := range cmd.Commands() {
		complete(app, sub)
	}
}
