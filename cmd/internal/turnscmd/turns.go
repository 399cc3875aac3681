// Package turnscmd contains the command turns: what the mailboxes of a database have, and operators' changes.
package turnscmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

const help = `See which messages wait, run or are dead, and act on them.

KEY is namespace/entity, such as conversation/42. Its mailbox is the one in the database that
has this namespace; if there are several, choose one with --mailbox.

The commands do not take part in any turn. Each makes its changes in one transaction.`

// New returns the command turns.
func New(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "turns",
		Short:      "See which messages wait, run or are dead, and act on them",
		Long:       help,
		SuggestFor: []string{"turn", "mailbox", "mailboxes"},
	}
	cmd.AddCommand(newLs(app), newShow(app), newInterrupt(app), newRetry(app), newSkip(app), newPurge(app))
	return cmd
}
