// Package lockcmd has the commands that take advisory locks, and those that show them.
package lockcmd

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/monitor"
)

// openMonitor opens a Monitor of which this program is the only viewer. The caller
// closes it.
func openMonitor(app *program.App, logger *slog.Logger) (*monitor.Monitor, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	return monitor.Open(monitor.Config{ConnConfig: cc, Namespaces: app.Namespaces(), MinInterval: 1, Logger: logger})
}

// locks reads the locks of the database once.
func locks(ctx context.Context, app *program.App) (monitor.Snapshot, error) {
	m, err := openMonitor(app, nil)
	if err != nil {
		return monitor.Snapshot{}, err
	}
	defer m.Close()
	s, err := m.Snapshot(ctx)
	if err != nil {
		return s, program.Unavailable(ctx, err)
	}
	if s.Partial {
		app.Logger().Info("columns are hidden", slog.String("columns", strings.Join(s.Hidden, ",")),
			slog.String("remedy", "GRANT pg_read_all_stats to the role"))
	}
	return s, nil
}

// A filter says which locks to show: those of the namespaces of --namespace
// without a number, and with --waiting only those for which somebody waits.
type filter struct {
	app     *program.App
	waiting bool
}

// addFilter gives cmd the flags of a filter.
func addFilter(app *program.App, cmd *cobra.Command) *filter {
	f := &filter{app: app}
	app.AddNamespaceFilter(cmd)
	cmd.Flags().BoolVar(&f.waiting, "waiting", false, "only locks for which somebody waits")
	return f
}

// apply leaves the matching locks in s. It keeps or drops all those of a key.
func (f *filter) apply(s *monitor.Snapshot) {
	contended := map[string]bool{}
	for _, l := range s.Locks {
		contended[l.Tag.String()] = contended[l.Tag.String()] || !l.Granted
	}
	names := make([]string, len(f.app.Filtered()))
	for i, name := range f.app.Filtered() {
		names[i] = name
		if number, err := strconv.Atoi(name); err == nil {
			if n, ok := f.app.Namespaces().Numbered(number); ok {
				names[i] = n.Name()
			}
		}
	}
	s.Locks = slices.DeleteFunc(s.Locks, func(l monitor.Lock) bool {
		if f.waiting && !contended[l.Tag.String()] {
			return true
		}
		return len(names) > 0 && (l.Namespace == nil || !slices.Contains(names, *l.Namespace))
	})
	s.Total = len(s.Locks)
}

// writeLocks writes locks as a table.
func writeLocks(app *program.App, w *bytes.Buffer, locks []monitor.Lock) {
	t := app.NewTable("KEY", "NAMESPACE", "MODE", "LOCK", "FOR", "PID", "APPLICATION", "SESSION", "BLOCKED BY")
	for _, l := range locks {
		state, colour := "waiting", program.Yellow
		if l.Granted {
			state, colour = "held", ""
		}
		t.Add(colour, l.Key.Text, deref(l.Namespace, "-"), mode(l), state, lasted(l), pidText(l.PID),
			orDash(l.ApplicationName), deref(l.State, "-"), pidsText(l.BlockedBy))
	}
	t.WriteTo(w)
}

// mode is "exclusive" or "shared".
func mode(l monitor.Lock) string {
	if l.Mode == "ShareLock" {
		return "shared"
	}
	return "exclusive"
}

// lasted says how long a wait lasts, and how long at least a hold has been seen.
func lasted(l monitor.Lock) string {
	d := time.Duration(l.Duration * float64(time.Second)).Round(100 * time.Millisecond)
	switch {
	case !l.Granted:
		return d.String()
	case d == 0:
		return "-" // seen for the first time; PostgreSQL does not know since when
	}
	return "≥" + d.String()
}

func pidText(pid uint32) string {
	if pid == 0 {
		return "prepared" // a prepared transaction holds the lock
	}
	return strconv.FormatUint(uint64(pid), 10)
}

func pidsText(pids []uint32) string {
	texts := make([]string, len(pids))
	for i, pid := range pids {
		texts[i] = pidText(pid)
	}
	return strings.Join(texts, ",")
}

func deref(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return orDash(*s)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
