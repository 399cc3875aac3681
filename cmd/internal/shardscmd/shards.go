// Package shardscmd contains the command shards: the owners of shards, and operators' changes.
package shardscmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

const help = `See which node owns which shards, and move them.

GROUP is the namespace that the nodes share, such as tenant=7, in the database of
--database-url, the environment and so on.

The commands take no part in the group: no node notices them. An order of drain or pin stays
in the database until it is removed, even while the node is away.`

// New returns the command shards.
func New(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "shards",
		Short:      "See which node owns which shards, and move them",
		Long:       help,
		SuggestFor: []string{"shard"},
	}
	cmd.AddCommand(newLs(app), newDrain(app), newPin(app))
	return cmd
}
