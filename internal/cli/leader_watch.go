package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
)

func newLeaderWatch(app *App) *cobra.Command {
	var (
		flags    electionFlags
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print who leads, and every change, until interrupted",
		Long: `Print who leads, and every change, until interrupted. With --output json or jsonl
each is a line. It looks every --interval: what begins and ends between two looks is
not seen. While the backend cannot be reached it says so on stderr and goes on.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 {
				return usageError("--interval is %v: use a positive duration", interval)
			}
			election, err := flags.election(app, args)
			if err != nil {
				return err
			}
			defer election.close()
			return watchLeader(cmd.Context(), app, election, interval)
		},
	}
	flags.addFlags(app, cmd)
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	return cmd
}

// watchLeader ends without an error when ctx does. The first look must succeed.
func watchLeader(ctx context.Context, app *App, election *Election, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last *leadership
	for {
		holder, ok, err := election.Backend.Leader(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last == nil:
			return unavailable(ctx, err)
		case err != nil:
			app.Logger().Warn("looking for the leader failed", slog.Any("error", err))
		default:
			now := time.Now()
			l := leadershipOf(election.Name, holder, ok)
			l.Time = &now
			if last == nil || !last.same(l) {
				if err := app.printChange(l); err != nil {
					return err
				}
				last = &l
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printChange prints one of a stream: json has no form for that but lines.
func (a *App) printChange(l leadership) error {
	if a.settings.output == "json" {
		return a.printLine(l)
	}
	return a.Print(l.output())
}
