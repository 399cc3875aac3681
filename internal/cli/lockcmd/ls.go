package lockcmd

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
)

// NewLs makes the command ls.
func NewLs(app *program.App) *cobra.Command {
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
	f := addFilter(app, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := locks(cmd.Context(), app)
		if err != nil {
			return err
		}
		f.apply(&s)
		return app.Print(program.Output{Document: s, Lines: program.Lines(s.Locks), Text: program.Text(func(w *bytes.Buffer) {
			writeLocks(app, w, s.Locks)
		})})
	}
	return cmd
}
