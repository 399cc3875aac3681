package cli

import (
	"bytes"

	"github.com/spf13/cobra"
)

func newLs(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "ls",
		Short:      "List the advisory locks of the database",
		SuggestFor: []string{"list", "locks", "ps"},
		Long: `List the advisory locks of the database: for each key first who holds it, then who
waits, in the order of the queue. PostgreSQL does not know since when a lock is held.

With -o json the document is the one that the web monitor serves; with -o jsonl each
line is one of its locks.`,
		Args: cobra.NoArgs,
	}
	f := app.addFilter(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := app.locks(cmd.Context())
		if err != nil {
			return err
		}
		f.apply(&s)
		return app.Print(Output{Document: s, Lines: lines(s.Locks), Text: text(func(w *bytes.Buffer) {
			app.writeLocks(w, s.Locks)
		})})
	}
	return cmd
}
