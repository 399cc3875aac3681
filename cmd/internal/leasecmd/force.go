package leasecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A forcedDocument is the lease that was ended.
type forcedDocument struct {
	document
	LockDelayMS int64 `json:"lock_delay_ms"`
}

func newForceRelease(app *program.App) *cobra.Command {
	var (
		server  lockserver.ClientFlags
		store   string
		request leasehttp.ForceReleaseRequest
	)
	cmd := &cobra.Command{
		Use:   "force-release NAME",
		Short: "End another holder's lease, as an admin",
		Long: `End another holder's lease, and print which lease it was. This needs a token with the
admin right. The server logs who did it, and why.

With --store postgres, no lock server is needed: the lease is in the store of the database of
--database-url. This needs the rights of a lock server on the tables of the store. The command
itself writes the log line, to stderr.

The command ends the lease that exists when it starts, or the one with --fencing-token, and
never a later one. It does not stop the holder, which continues until its next renewal is
refused: have the protected resource refuse the old fencing token. If the holder asked for a
lock delay, nobody gets the lock until the delay is over.

Exit codes: 0 ended, 3 nobody has the lock, 69 the server or its store is unavailable or too
busy, or the right is missing, 75 the lock is in its lock delay, 76 the lease is no longer
the current one.`,
		Example: "  pglatch lease force-release nightly-report --reason 'its host is gone'\n  pglatch lease force-release nightly-report --store postgres --reason 'its host is gone'",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := LockName(args)
			if err != nil {
				return err
			}
			if request.Name = name; request.Reason == "" {
				return program.UsageError("give --reason, for the server's log")
			}
			ctx := cmd.Context()
			client, closeAll, err := clientOf(ctx, app, &server, store)
			if err != nil {
				return err
			}
			defer closeAll()
			ended, delay, err := client.ForceRelease(ctx, request)
			if err != nil {
				return ForceError(ctx, err)
			}
			return app.Print(program.Sentence(forcedDocument{newDocument(ended), delay.Milliseconds()}, Forced(ended, delay)))
		},
	}
	f := cmd.Flags()
	server.AddFlags(f)
	f.StringVar(&store, "store", "", "`where` the lease is kept, without a lock server: postgres (the database of --database-url) or postgres://…")
	cmd.MarkFlagsMutuallyExclusive("server", "store")
	f.StringVar(&request.Reason, "reason", "", "`text` that says why, for the server's log")
	f.StringVar(&request.ID, "lease-id", "", "`id` of the lease that is to end")
	f.Uint64Var(&request.Token, "fencing-token", 0, "of the lease that is to end (default: that of the current one)")
	return cmd
}

// clientOf returns a client of the lock server, or of the store if one is named.
func clientOf(ctx context.Context, app *program.App, server *lockserver.ClientFlags, store string) (*leasehttp.Client, func(), error) {
	switch kind, _, _ := strings.Cut(store, ":"); kind {
	case "":
		client, err := server.Client(app, 0)
		if err != nil {
			return nil, nil, err
		}
		return client, client.Close, nil
	case "postgres", "postgresql":
		if store != kind {
			app.UseDatabase(store, "--store")
		}
		return lockserver.Direct(ctx, app)
	}
	return nil, nil, program.UsageError("--store is neither postgres nor postgres://…: a lock server has the leases of another store")
}

// freeOr returns the error of exit code 3 if err means that the lock is free.
func freeOr(other, err error) error {
	stale, ok := errors.AsType[*lease.StaleError](err)
	if ok && stale.Released || errors.Is(err, lease.ErrExpired) || errors.Is(err, lease.ErrNotFound) {
		return &program.ExitError{Code: program.ExitFree, Err: err}
	}
	return other
}

// ForceError returns the error of a forced release with its exit code.
func ForceError(ctx context.Context, err error) error { return freeOr(lockserver.Error(ctx, err), err) }

// Forced says which lease a forced release ended.
func Forced(ended lease.Lease, delay time.Duration) string {
	text := fmt.Sprintf("ended the lease of %s on %s: fencing token %d, %v were left",
		program.Printable(ended.Holder), program.Printable(ended.Name), ended.Token, ended.Remaining.Round(time.Millisecond))
	if delay > 0 {
		text += fmt.Sprintf("; its lock delay keeps the lock for %v", delay.Round(time.Millisecond))
	}
	return text
}
