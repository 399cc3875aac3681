// Package turnscmd contains the command turns: what the mailboxes of a database have, and operators' changes.
package turnscmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

const help = `See which messages wait, run or are dead, and act on them.

KEY is namespace/entity, such as conversation/42. Its mailbox is the one of the database that has
this namespace; --mailbox chooses if there are several.

The commands take part in no turn. What they change is in one transaction each.`

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
