package lockcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// A tryDocument reports that the lock was acquired.
type tryDocument struct {
	Key        string `json:"key"`
	Shared     bool   `json:"shared"`
	BackendPID uint32 `json:"backend_pid"`
}

// NewTry returns the command try.
func NewTry(app *program.App) *cobra.Command {
	t := taking{Waiting: program.Waiting{Bounded: true}}
	var hold time.Duration
	cmd := &cobra.Command{
		Use:        "try KEY",
		Aliases:    []string{"acquire"},
		Short:      "Take a lock if it is free, and release it",
		SuggestFor: []string{"trylock"},
		Long: `Take a lock if it is free, print that on stdout, and release it: at once, or with
--hold after that time or at the first SIGINT or SIGTERM.

Exit codes: 0 the lock was acquired, 75 (or -E) another holder has it, 76 the lock was
lost while it was held, 69 the database is unavailable, 77 the database refuses the user
or does not exist.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(program.NotNegative("hold", hold, ""), t.Check(cmd.Flags())); err != nil {
				return err
			}
			return try(cmd.Context(), app, args, &t, hold)
		},
	}
	app.AddKeyFlags(cmd)
	t.addFlags(cmd.Flags())
	t.AddCodeFlag(cmd.Flags())
	cmd.Flags().DurationVar(&hold, "hold", 0, "keep the lock for this long")
	return cmd
}

func try(ctx context.Context, app *program.App, args []string, t *taking, hold time.Duration) error {
	key, err := app.Key(args)
	if err != nil {
		return err
	}
	locker, err := openLocker(ctx, app, t)
	if err != nil {
		return err
	}
	defer locker.Close()
	lock, err := take(ctx, app, t, locker, key)
	if err != nil {
		return err
	}
	d := tryDocument{Key: key.String(), Shared: lock.Shared(), BackendPID: lock.PID()}
	err = app.Print(program.Sentence(d, fmt.Sprintf("acquired %s (backend %d)", program.Printable(d.Key), d.BackendPID)))
	if err == nil {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
		case <-lock.Lost():
		}
	}
	return errors.Join(err, lock.Release())
}
