package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// values returns the values of flags that take one of a few.
func values() map[string][]string {
	return map[string][]string{
		"output":     {"text", "json", "jsonl"},
		"color":      {"auto", "always", "never"},
		"log-format": {"text", "json"},
		"log-level":  {"debug", "info", "warn", "error"},
		"sort":       overview.Orders(),
		"on-lost":    {"kill", "warn"},
		"on-ask":     {"ignore", "term"},
		"restart":    {"always", "on-failure", "never"},
		"signal":     {"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"},
	}
}

// complete lets the shell complete keys, sessions and the values of flags.
func complete(app *program.App, cmd *cobra.Command) {
	choices := values()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if list, ok := choices[f.Name]; ok {
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
