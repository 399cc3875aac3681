package leadercmd

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

func newWatch(app *program.App, more []Backend) *cobra.Command {
	var (
		flags    electionFlags
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "watch NAME",
		Short: "Print who leads, and every change, until interrupted",
		Long: `Print who leads, and every change, until interrupted. With --output json or jsonl each
change is a line. watch looks every --interval: leadership that begins and ends between two
looks is not seen. While the backend cannot be reached, it says so on stderr and retries.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := program.Positive("interval", interval); err != nil {
				return err
			}
			election, err := flags.election(app, cmd, args)
			if err != nil {
				return err
			}
			defer election.close()
			return watch(cmd.Context(), app, election, interval)
		},
	}
	flags.addFlags(app, cmd, more)
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "interval of updates")
	return cmd
}

// watch prints changes. It ends without an error when ctx ends. The first query must succeed.
func watch(ctx context.Context, app *program.App, election *Election, interval time.Duration) error {
	var last *leadership
	return program.Watch[leadership]{
		Interval: interval, Failed: func(err error) { app.Logger().Warn("looking for the leader failed", slog.Any("error", err)) },
		Look: func(ctx context.Context) (leadership, error) {
			holder, ok, err := election.Backend.Leader(ctx)
			if err != nil {
				return leadership{}, program.Unavailable(ctx, err)
			}
			return leadershipOf(election.Name, holder, ok), nil
		},
		Show: func(l leadership) error {
			now := time.Now()
			l.Time = &now
			if last != nil && last.same(l) {
				return nil
			}
			last = &l
			return app.PrintChange(l.output())
		},
	}.Run(ctx)
}
