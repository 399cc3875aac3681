package cli

import (
	"bytes"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func newMigrate(app *App) *cobra.Command {
	var (
		e    postgresElection
		show bool
	)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the table that elections count their terms in",
		Long: `Make the table that elections count their terms in, unless it is there. Candidates
need SELECT, INSERT and UPDATE on it. With --show-sql print the SQL instead, for other
tools.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			backend, err := e.backend(app, namespace.Pair(0, 0)) // one table for all elections
			if err != nil {
				return err
			}
			if show {
				sql := postgres.Schema(e.table)
				return app.Print(Output{
					Document: map[string]string{"sql": sql},
					Text:     text(func(b *bytes.Buffer) { b.WriteString(sql + ";\n") }),
				})
			}
			if err := backend.Migrate(cmd.Context()); err != nil {
				return unavailable(cmd.Context(), err)
			}
			app.Logger().Info("the table is there", slog.String("table", e.table))
			return nil
		},
	}
	cmd.Flags().StringVar(&e.table, "table", postgres.DefaultTable, "`table` that counts the terms")
	cmd.Flags().BoolVar(&show, "show-sql", false, "print the SQL, connect to nothing")
	return cmd
}
