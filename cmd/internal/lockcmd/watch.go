package lockcmd

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/watchui"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/monitor"
)

const minInterval = 250 * time.Millisecond

func checkInterval(d time.Duration) error {
	if d < minInterval {
		return program.UsageError("--interval is %v: use 250ms or more", d)
	}
	return nil
}

// A watcher shows the locks repeatedly.
type watcher struct {
	app      *program.App
	filter   *filter
	server   leaseLister
	interval time.Duration
	rows     int
}

// NewWatch returns the command watch.
func NewWatch(app *program.App) *cobra.Command {
	w := &watcher{app: app}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the locks live",
		Long: `Show the locked keys live on a terminal, one line per key, as ls does. Arrow keys, page up
and page down move; enter opens a key, and esc closes it; s changes the sort order; / filters
by part of a key, a name or a label; f shows shards, ticks, mailboxes and leases, with
--server also those of a lock server and their waiters; q and Ctrl-C quit.

Without a terminal, and with -o json or jsonl, watch writes a line of JSON for each change
of one session's lock. It starts with the locks that exist, and then reports "held",
"waiting", "released" and "gone" (a waiter that did not get the lock). Locks that are taken
and released between two updates are not seen. If the database stops answering, watch
reports that and retries. SIGINT or SIGTERM ends it with exit code 0.`,
		Example: "  pglatch watch\n  pglatch watch --waiting --sort wait\n  pglatch watch -o jsonl | jq -c 'select(.change==\"waiting\")'",
		Args:    cobra.NoArgs,
		RunE:    w.run,
	}
	w.filter = addFilter(app, cmd, overview.ByTrouble)
	w.server.addFlag(cmd)
	cmd.Flags().DurationVar(&w.interval, "interval", time.Second, "interval of updates, at least 250ms")
	cmd.Flags().IntVar(&w.rows, "rows", 0, "maximum number of keys on a terminal (default: all)")
	return cmd
}

func (w *watcher) run(cmd *cobra.Command, _ []string) error {
	err := cmp.Or(checkInterval(w.interval), w.filter.check())
	if cmd.Flags().Changed("rows") {
		err = cmp.Or(err, program.AtLeastOne("rows", w.rows))
	}
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if w.app.Format() == "text" && w.app.Terminal() && os.Getenv("TERM") != "dumb" {
		// Negotiation is not needed, and the terminal's driver knows the size: tmux 3.3 answers such a query with width
		// and height exchanged. Only Windows needs it, for its keys.
		if screen, err := tcell.NewScreen(tcell.OptNegotiation(runtime.GOOS == "windows")); err == nil {
			return w.onScreen(ctx, screen)
		}
	}
	if len(w.server.flags.URLs) > 0 {
		return program.UsageError(`--server needs a terminal, where the key f shows leases: for a script, run "pglatch ls -o json --server"`)
	}
	return w.writeChanges(ctx)
}

// onScreen shows the keys until the user quits. Nothing is logged meanwhile.
func (w *watcher) onScreen(ctx context.Context, screen tcell.Screen) error {
	looker, err := lookup.Open(w.app, nil, 0)
	if err != nil {
		return err
	}
	defer looker.Close()
	if err := w.server.open(w.app); err != nil {
		return err
	}
	defer w.server.close()
	first := w.look(ctx, looker)
	if first.Err != nil {
		return interrupted(ctx, first.Err)
	}
	data := make(chan watchui.Data, 1)
	defer background.Run(ctx, func(ctx context.Context) { w.feed(ctx, looker, data) })()
	m := &watchui.Model{Interval: w.interval, Sort: w.filter.sort, Most: w.rows}
	m.Show(first)
	return watchui.Run(ctx, m, screen, w.app.Colored(), data)
}

// feed queries repeatedly.
func (w *watcher) feed(ctx context.Context, looker *lookup.Looker, data chan<- watchui.Data) {
	_ = program.Watch[watchui.Data]{
		Interval: w.interval, Look: func(ctx context.Context) (watchui.Data, error) { return w.look(ctx, looker), nil },
		Show: func(d watchui.Data) error {
			select {
			case data <- d:
			case <-ctx.Done():
			}
			return nil
		},
	}.Run(ctx) // the screen shows errors too
}

func (w *watcher) look(ctx context.Context, looker *lookup.Looker) watchui.Data {
	var leases []overview.Section
	var reading sync.WaitGroup
	reading.Go(func() { leases = w.server.sections(w.server.read(ctx)) })
	v, err := ofPrimary(looker.Judge(ctx))
	reading.Wait()
	if err != nil {
		return watchui.Data{Err: err}
	}
	d := watchui.Data{
		Verdicts: v.Verdicts, Database: v.Server.Database, At: v.Server.Now, Rows: w.filter.apply(&v, lookup.Selection{}),
		Fleet: slices.Concat(overview.Fleet(v.Fleet), leases),
	}
	for _, s := range v.Answers.Silent {
		d.Silent = append(d.Silent, s.ApplicationName)
	}
	return d
}

// writeChanges writes a line for each change. Only the first failure of the database is an error.
func (w *watcher) writeChanges(ctx context.Context) error {
	looker, err := lookup.Open(w.app, w.app.Logger(), 0)
	if err != nil {
		return err
	}
	defer looker.Close()
	var before monitor.Snapshot
	return program.Watch[lookup.View]{
		Interval: w.interval, Failed: notSeen(w.app),
		Look: func(ctx context.Context) (lookup.View, error) { return ofPrimary(looker.Look(ctx)) },
		Show: func(v lookup.View) error {
			w.filter.apply(&v, lookup.Selection{})
			for _, c := range changes(before, v.Snapshot) {
				if err := w.app.PrintLine(c); err != nil {
					return err
				}
			}
			before = v.Snapshot
			return nil
		},
	}.Run(ctx)
}

// ofPrimary returns a look, or an error if it was at a standby.
func ofPrimary(v lookup.View, err error) (lookup.View, error) {
	return v, cmp.Or(err, v.Primary())
}

// notSeen logs a look that failed. The monitor logs when a failure begins and ends.
func notSeen(app *program.App) func(error) {
	return func(err error) { app.Logger().Debug("nothing was seen", slog.Any("error", err)) }
}

// interrupted returns err, unless ctx ended: that is the requested end.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
