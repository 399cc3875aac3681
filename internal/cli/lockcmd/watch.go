package lockcmd

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/monitor"
)

const minInterval = 250 * time.Millisecond

// A watcher shows the locks again and again.
type watcher struct {
	app      *program.App
	filter   *filter
	interval time.Duration
	rows     int
	before   monitor.Snapshot
	looked   bool
}

// NewWatch makes the command watch.
func NewWatch(app *program.App) *cobra.Command {
	w := &watcher{app: app}
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the locks live",
		Long: `Show the locks live, on a terminal; else, and with -o json or jsonl, write a line of
JSON for each change: first what there is, then what is "held", "waiting", "released"
or "gone" (a waiter that did not get the lock). Locks taken and released between two
looks are not seen. When the database stops answering, watch logs it and tries on.
SIGINT or SIGTERM ends it with exit code 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return w.run(cmd.Context()) },
	}
	w.filter = addFilter(app, cmd)
	cmd.Flags().DurationVar(&w.interval, "interval", time.Second, "time between two looks, at least 250ms")
	cmd.Flags().IntVar(&w.rows, "rows", 40, "most locks to show on a terminal")
	return cmd
}

func (w *watcher) run(ctx context.Context) error {
	switch {
	case w.interval < minInterval:
		return program.UsageError("--interval is %v: use 250ms or more", w.interval)
	case w.rows < 1:
		return program.UsageError("--rows is %d: use 1 or more", w.rows)
	}
	m, err := openMonitor(w.app, w.app.Logger())
	if err != nil {
		return err
	}
	defer m.Close()
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		if err := w.look(ctx, m); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look shows the locks once. Only the first failure of the database is an error.
func (w *watcher) look(ctx context.Context, m *monitor.Monitor) error {
	s, err := m.Snapshot(ctx)
	if err != nil {
		if ctx.Err() != nil || w.looked {
			err = nil // the end, or the monitor logged it
		}
		return program.Unavailable(ctx, err)
	}
	w.filter.apply(&s)
	show := w.write
	if w.app.Format() == "text" && w.app.Terminal() {
		show = w.draw
	}
	err = show(s)
	w.before, w.looked = s, true
	return err
}

// write writes a line for each change.
func (w *watcher) write(s monitor.Snapshot) error {
	for _, c := range changes(w.before, s) {
		if err := w.app.PrintLine(c); err != nil {
			return err
		}
	}
	return nil
}

// The sequences of a screen that is drawn over the one before, without flicker.
const (
	clearScreen = "\x1b[2J"
	home        = "\x1b[H"
	clearLine   = "\x1b[K\n"
	clearBelow  = "\x1b[J"
)

// draw draws the screen.
func (w *watcher) draw(s monitor.Snapshot) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s  every %v  %d locks  %s\n\n", program.Printable(s.Server.Database), w.interval, s.Total, s.Server.Now.Format(time.TimeOnly))
	writeLocks(w.app, &text, s.Locks[:min(len(s.Locks), w.rows)])
	if more := len(s.Locks) - w.rows; more > 0 {
		fmt.Fprintf(&text, "… and %d more: see --rows, --waiting and --namespace\n", more)
	}
	screen := home + strings.ReplaceAll(text.String(), "\n", clearLine) + clearBelow
	if !w.looked {
		screen = clearScreen + screen
	}
	_, err := w.app.Stdout.Write([]byte(screen))
	return err
}
