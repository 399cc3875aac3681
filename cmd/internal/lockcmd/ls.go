package lockcmd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// A list is the output of ls.
type list struct {
	monitor.Snapshot
	Keys   []*overview.Row     `json:"keys"`
	Silent []introspect.Silent `json:"silent,omitempty"`
	Fleet  *fleet.Fleet        `json:"fleet,omitempty"`
	Leases []fleet.Lease       `json:"server_leases,omitempty"` // of the lock server of --server

	Problems []string `json:"problems,omitempty"` // why tables were not read
}

// NewLs returns the command ls.
func NewLs(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "ls [KEY|PREFIX]",
		Short:      "List the keys that are locked: who holds them, since when, who waits",
		SuggestFor: []string{"list", "locks", "ps"},
		Long: `List the advisory locks of the database: one line for each key that is held or
waited for, including those of semaphores and elections. A PREFIX ends with '/', ':' or '*'.

Processes that use pglatch report what PostgreSQL does not know: names, labels, since when a
lock is held, and which calls inside the process wait for it and for how long. For other
processes the list has only what PostgreSQL shows. "≥" marks a time that may be longer.
"silent" marks a process that listens for questions but does not answer: it was stopped,
or is cut off.

Without an argument and without filters, the list also shows the groups of shards, the
ticks, the mailboxes and the leases of the database, if it has their tables. Tables also give
names to locks whose keys are hashes. If the role may not read a table, standard error says
so, and -o json has it as "problems". With --server it shows the first 1,000 leases of a lock
server too, and how many requests wait for each; -o json has them as "server_leases". A table
of leases does not have the waiting requests.

With -o json the output is the document that the web monitor serves, plus the table's rows
as "keys". With -o jsonl each line is one lock of one session.`,
		Example: `  pglatch ls                         # all keys
  pglatch ls order/                  # those of a namespace
  pglatch ls --longer-than 5m --sort wait
  pglatch ls --app billing --waiting
  pglatch ls --server https://locks.internal`,
		Args: cobra.MaximumNArgs(1),
	}
	f := addFilter(app, cmd, overview.ByKey)
	var server leaseLister
	server.addFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		for _, text := range args {
			if err := lookup.CheckSelection(app, text); err != nil {
				return err
			}
		}
		if err := server.open(app); err != nil {
			return err
		}
		defer server.close()
		v, err := lookup.Once(cmd.Context(), app)
		if err != nil {
			return err
		}
		v.TellHidden(app)
		lookup.TellUnread(app, v.Unread())
		var selected lookup.Selection
		if len(args) == 1 {
			if selected, err = v.Select(app, args[0]); err != nil {
				return err
			}
		}
		held := len(v.Locks)
		rows := f.apply(&v, selected)
		leases, unread := server.read(cmd.Context())
		shown := v.Fleet
		if len(args) > 0 || f.filters() {
			shown = nil
		}
		if len(rows) == 0 && app.Format() == "text" && !v.Server.Standby {
			tellNone(app, held)
		}
		return errors.Join(app.Print(program.Output{
			Document: list{v.Snapshot, rows, v.Answers.Silent, shown, leases, v.Unread()}, Lines: program.Lines(v.Locks),
			Text: func(w *bytes.Buffer) {
				writeRows(app, w, rows, v)
				writeSections(app, w, slices.Concat(overview.Fleet(shown), overview.ServerLeases(leases)))
			},
		}), v.Primary(), lockserver.Error(cmd.Context(), unread))
	}
	return cmd
}

// tellNone explains on stderr why the table is empty.
func tellNone(app *program.App, held int) {
	if held == 0 {
		app.Logger().Info("no locks are held")
		return
	}
	app.Logger().Info("locks are held, and none of them is shown: see the arguments", slog.Int("locks", held))
}

// writeRows writes keys as a table.
func writeRows(app *program.App, w *bytes.Buffer, rows []*overview.Row, v lookup.View) {
	t := app.NewTable(overview.Header()...)
	for _, r := range rows {
		color := ""
		switch {
		case r.Silent():
			color = program.Red
		case len(r.Waiters) > 0:
			color = program.Yellow
		}
		t.Add(color, r.Cells()...)
	}
	t.WriteTo(w)
	for _, s := range v.Answers.Silent {
		fmt.Fprintf(w, "%s\n", app.Paint(program.Red, fmt.Sprintf("silent: %s, which listens on backend %d", program.Printable(s.ApplicationName), s.Session)))
	}
}

// writeSections writes one table for each idea.
func writeSections(app *program.App, w *bytes.Buffer, all []overview.Section) {
	for _, s := range all {
		fmt.Fprintln(w)
		t := app.NewTable(s.Header...)
		for _, line := range s.Lines {
			color := ""
			if line.Trouble {
				color = program.Yellow
			}
			t.Add(color, line.Cells...)
		}
		t.WriteTo(w)
	}
}
