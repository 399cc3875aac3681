package shardscmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// NewInMemory makes the command on one backend, in which all groups are one.
func NewInMemory(app *program.App, b *shardstest.Backend) *cobra.Command {
	cmd := newShards(app, func(_ *program.App, name, _ string) (*Group, error) {
		return &Group{name: name, place: "memory", backend: b, fail: program.Unavailable}, nil
	})
	app.AddFlags(cmd.PersistentFlags())
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return app.Resolve(cmd) }
	return cmd
}
