package shardscmd

import (
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/cli/lockserver"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/leader/shards/leased"
)

func leaseFlags(f *pflag.FlagSet) program.OpenFunc[*group] {
	var server lockserver.ClientFlags
	server.AddFlags(f)
	return func(app *program.App, args []string) (*group, error) {
		client, err := server.Client(app, 0)
		if err != nil {
			return nil, err
		}
		b, err := leased.New(client, leased.Config{Name: args[0]})
		if err != nil {
			client.Close()
			return nil, program.UsageError("GROUP: %w", err)
		}
		return &group{name: args[0], place: "the lock server", backend: b, done: client.Close, fail: lockserver.Error}, nil
	}
}
