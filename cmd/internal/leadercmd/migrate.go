package leadercmd

import (
	"cmp"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// NewMigrate returns the command migrate.
func NewMigrate(app *program.App) *cobra.Command {
	var (
		e      postgresElection
		show   bool
		newEra bool
	)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the table in which elections count their terms",
		Long: `Create the table in which elections count their terms, unless it exists, and print whether
it was created or was there before. A table that lacks a column is refused, and stays as it
is. Candidates need SELECT, INSERT and UPDATE on the table. With --show-sql, print the SQL
instead, for other tools.

If the server was restored from a copy that is older than a promotion, or its clock was set
back, run this with --new-era before candidates start: new terms are then greater than all
earlier ones. Candidates detect other restores themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			backend, err := e.backend(app, namespace.Pair(0, 0)) // all elections share one table
			if err != nil {
				return err
			}
			if show {
				sql := postgres.Schema(e.table)
				return app.Print(program.Sentence(map[string]string{"sql": sql}, sql+";"))
			}
			did, err := migration(cmd.Context(), app, cmp.Or(e.table, postgres.DefaultTable), backend.Migrate)
			if err != nil {
				return err
			}
			if newEra {
				if did.NewEra, err = backend.NewEra(cmd.Context()); err != nil {
					return program.Unavailable(cmd.Context(), err)
				}
				app.Logger().Info("a new era has begun", slog.String("table", e.table), slog.Int64("elections", did.NewEra))
			}
			return app.Print(did.output())
		},
	}
	cmd.Flags().StringVar(&e.table, "table", postgres.DefaultTable, "`table` that counts the terms")
	cmd.Flags().BoolVar(&newEra, "new-era", false, "also raise the era of all elections of the table, after a restore that the server cannot detect")
	cmd.Flags().BoolVar(&show, "show-sql", false, "print the SQL, connect to nothing")
	return cmd
}
