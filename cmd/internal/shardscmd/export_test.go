package shardscmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// NewInMemory makes the command on one backend, in which all groups are one.
func NewInMemory(app *program.App, b *shardstest.Backend) *cobra.Command {
	cmd := newShards(app, func(*pflag.FlagSet) openFunc {
		return func(_ *program.App, args []string) (*Group, error) {
			return &Group{name: args[0], place: "memory", backend: b, fail: program.Unavailable}, nil
		}
	})
	app.AddFlags(cmd.PersistentFlags())
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return app.Resolve(cmd) }
	return cmd
}
