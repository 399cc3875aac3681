package leasecmd

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A recordDocument has the field names of the server's own answers.
type recordDocument struct {
	document
	State         string `json:"state"`
	Version       uint64 `json:"version"`
	AvailableInMS int64  `json:"available_in_ms"`
	Waiters       *int   `json:"waiters,omitempty"` // nil = the server does not say
}

func newRecordDocument(r lease.Record) recordDocument {
	return recordDocument{newDocument(r.Lease), r.State.String(), r.Version, r.AvailableIn.Milliseconds(), r.Waiters}
}

func newGet(app *program.App) *cobra.Command {
	var (
		server lockserver.ClientFlags
		wait   time.Duration
		index  uint64
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show who has a lock, or had it last",
		Long: `Show who has a lock, or who had it last.

With --wait it waits for a change: a lease that is granted, renewed, released, or found
expired. It waits for a change of the state that it finds at its start, or of the version
--index, which an earlier answer had. If the time passes without one, it shows the state.

With --follow it prints the state, and every change, until interrupted; with --output json
or jsonl each is a line. If changes come faster than they are printed, only the latest is
printed. While no server can be used, it says so on stderr and retries.

Exit codes: 0 somebody has the lock, 3 nobody has it; with --follow 0 when interrupted.`,
		Example: "  pglatch lease get nightly-report --wait 10m -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := LockName(args)
			if err != nil {
				return err
			}
			from := &index
			if !cmd.Flags().Changed("index") {
				from = nil
			}
			if err := program.NotNegative("wait", wait, ", or 0s to see what is"); err != nil {
				return err
			}
			if from != nil && !follow && !cmd.Flags().Changed("wait") {
				return program.UsageError("--index is for --wait and --follow")
			}
			client, err := server.Client(app, 0)
			if err != nil {
				return err
			}
			defer client.Close()
			ctx := cmd.Context()
			w := watching{app: app, client: client, name: name, grace: leasehttp.DefaultTimeout}
			var record lease.Record
			switch {
			case follow:
				return w.follow(ctx, from)
			case wait > 0:
				record, err = w.changed(ctx, from, wait)
			default:
				record, err = client.Get(ctx, name)
			}
			if errors.Is(err, lease.ErrNotFound) {
				return &program.ExitError{Code: program.ExitFree, Err: err}
			}
			if err != nil {
				return lockserver.Error(ctx, err)
			}
			if err := printRecords(app, newRecordDocument(record), []lease.Record{record}); err != nil {
				return err
			}
			if record.State != lease.Held {
				return &program.ExitError{Code: program.ExitFree}
			}
			return nil
		},
	}
	f := cmd.Flags()
	server.AddFlags(f)
	f.DurationVarP(&wait, "wait", "w", 0, "wait up to this long for a change, and for an unavailable server")
	f.Uint64Var(&index, "index", 0, "`version` of an earlier answer: wait for a later one; 0 = the lock was unknown (default: the current version)")
	f.BoolVarP(&follow, "follow", "f", false, "print the current record and every change, until interrupted")
	cmd.MarkFlagsMutuallyExclusive("wait", "follow")
	return cmd
}

func newList(app *program.App) *cobra.Command {
	var (
		server  lockserver.ClientFlags
		request lease.ListRequest
	)
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the locks that the server knows",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := request.Validate(); err != nil {
				return program.UsageError("%w", err)
			}
			client, err := server.Client(app, 0)
			if err != nil {
				return err
			}
			defer client.Close()
			var records []lease.Record
			documents := []recordDocument{}
			for record, err := range client.List(cmd.Context(), request) {
				if err != nil {
					return lockserver.Error(cmd.Context(), err)
				}
				records = append(records, record)
				documents = append(documents, newRecordDocument(record))
			}
			return printRecords(app, documents, records)
		},
	}
	f := cmd.Flags()
	server.AddFlags(f)
	f.StringVar(&request.Prefix, "prefix", "", "list names that begin with this `text` only")
	f.StringVar(&request.After, "after", "", "list names after this one")
	f.IntVar(&request.Limit, "limit", 0, "list this many at most; 0 = all")
	return cmd
}

func printRecords(app *program.App, document any, records []lease.Record) error {
	documents := make([]recordDocument, len(records))
	for i, r := range records {
		documents[i] = newRecordDocument(r)
	}
	return app.Print(program.Output{Document: document, Lines: program.Lines(documents), Text: func(w *bytes.Buffer) {
		t := app.NewTable("LOCK", "STATE", "OWNER", "TOKEN", "REMAINING", "WAITERS", "ACQUIRED")
		for _, r := range records {
			color, remaining, waiters := "", "", ""
			if r.Waiters != nil {
				waiters = strconv.Itoa(*r.Waiters)
			}
			switch r.State {
			case lease.Held:
				color, remaining = program.Green, r.Remaining.Round(time.Millisecond).String()
			case lease.Expired:
				color = program.Yellow
			}
			t.Add(color, r.Name, r.State.String(), r.Holder, fmt.Sprint(r.Token), remaining, waiters, r.AcquiredAt.UTC().Format(time.RFC3339))
		}
		t.WriteTo(w)
	}})
}
