package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func newLeader(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Take part in an election, or look at one",
		Long: `Take part in an election, or look at one.

An election is a key, as of a lock: namespace/entity, a pair of int4 or a bigint.`,
	}
	cmd.AddCommand(newLeaderRun(app), newLeaderStatus(app), newLeaderWatch(app))
	return cmd
}

// An election is what names one.
type election struct {
	table   string
	noTerms bool
	create  bool
}

func (e *election) addFlags(f *pflag.FlagSet) {
	f.StringVar(&e.table, "table", postgres.DefaultTable, "`table` that counts the terms")
	f.BoolVar(&e.noTerms, "no-terms", false, "do without terms and their table")
}

// backend returns the election's backend, which has not connected yet.
func (e *election) backend(app *App, key namespace.Key) (*postgres.Backend, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	return postgres.New(postgres.Config{
		ConnConfig: cc, Key: key, Table: e.table, NoTerms: e.noTerms, CreateTable: e.create, Logger: app.Logger(),
	})
}
