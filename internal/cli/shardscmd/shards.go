// Package shardscmd has the command shards: who owns what, and what people change about it.
package shardscmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
)

const help = `See which node owns which shards, and move them.

GROUP is the name that the nodes have in common, and --backend where it lives:

  postgres    in a database, that of --database-url, the environment and so on
  lease       in the leases of a lock server, that of --server or PGLATCH_LOCK_SERVER,
              else http://127.0.0.1:8080

A command takes no part: no node notices that it looks. What drain and pin say is kept
in the backend until it is taken back, also while the node is away.`

// New makes the command shards.
func New(app *program.App) *cobra.Command { return newShards(app, backends()) }

func newShards(app *program.App, all []backend) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "shards",
		Short:      "See which node owns which shards, and move them",
		Long:       help,
		SuggestFor: []string{"shard"},
	}
	cmd.AddCommand(newLs(app, all), newDrain(app, all), newPin(app, all))
	return cmd
}
