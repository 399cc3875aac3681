package lockcmd

import (
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
)

const requestCodes = `

Exit codes: 0 a holder accepted the request, 3 nobody holds the key, 69 the holder does not
answer (it is stopped, cut off, or not a program that answers), 77 it refuses.`

// NewAsk returns the command ask.
func NewAsk(app *program.App) *cobra.Command {
	return newRequest(app, introspect.AskRelease, &cobra.Command{
		Use:        "ask KEY",
		Short:      "Ask the holder of a lock to release it",
		SuggestFor: []string{"release", "unlock", "free"},
		Long: `Ask the processes that hold a lock, or slots of a semaphore, to release it. A program that
allows this (Config.Answer.AllowAsk) receives the request through lock.Asked(); the lock stays
held until the program releases it. "pglatch run --on-ask=term" ends its command.` + requestCodes,
		Example: "  pglatch ask order/42 && pglatch run -w 1m order/42 -- ./repair.sh",
	})
}

// NewDump returns the command dump.
func NewDump(app *program.App) *cobra.Command {
	return newRequest(app, introspect.AskDump, &cobra.Command{
		Use:   "dump KEY",
		Short: "Ask the holder of a lock to log its stack",
		Long: `Ask the processes that hold a lock to write the stack of the goroutine that took it to
their own logs. A program allows this with Config.Answer.AllowDump.` + requestCodes,
		Example: "  pglatch dump order/42; kubectl logs billing-2 | grep -A30 'stack of the goroutine'",
	})
}

func newRequest(app *program.App, kind introspect.RequestKind, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return lookup.Request(cmd.Context(), app, args, introspect.Request{Kind: kind})
	}
	app.AddKeyFlags(cmd)
	return cmd
}
