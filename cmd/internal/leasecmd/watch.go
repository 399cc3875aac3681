package leasecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const (
	longPoll = 20 * time.Second

	// shortestPoll is the shortest interval between requests to a server that did not wait, such as
	// an earlier version.
	shortestPoll = time.Second
)

var errNoAnswer = errors.New("no answer in time")

// A watching queries a lock, and waits for changes of it.
type watching struct {
	app    *program.App
	client *leasehttp.Client
	name   string
	grace  time.Duration // how long an answer may take to arrive when the wait is over
	failed int           // consecutive failed queries
}

// next returns the lock's record as soon as its version differs from version; nil = at once. It
// retries while no server can be used. until bounds both: then next returns the known record, or the
// reason why there is none. Zero = no bound.
func (w *watching) next(ctx context.Context, version *uint64, until time.Time) (lease.Record, error) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until.Add(w.grace), errNoAnswer)
		defer cancel()
	}
	for {
		wait := longPoll
		if !until.IsZero() {
			wait = min(wait, max(time.Until(until), 0))
		}
		begun := time.Now()
		r, err := w.look(ctx, version, wait)
		over := !until.IsZero() && time.Until(until) <= 0 || ctx.Err() != nil
		if err == nil && (version == nil || r.Version != *version) || over || isFinal(err) {
			return r, err
		}
		again := shortestPoll - time.Since(begun)
		switch {
		case err != nil:
			again = pause.Backoff(w.failed, 100*time.Millisecond, time.Second)
			if !until.IsZero() && time.Until(until) < again {
				return r, err
			}
			w.fail(err, until)
		case !until.IsZero():
			again = min(again, time.Until(until))
		}
		_ = pause.For(ctx, again) // the next query reports that ctx ended
	}
}

// look queries once. An unknown lock has the version 0.
func (w *watching) look(ctx context.Context, version *uint64, wait time.Duration) (r lease.Record, err error) {
	if version == nil {
		r, err = w.client.Get(ctx, w.name)
	} else {
		r, err = w.client.GetAfter(ctx, w.name, *version, wait)
	}
	if errors.Is(err, lease.ErrNotFound) {
		r, err = lease.Record{Lease: lease.Lease{Claim: lease.Claim{Name: w.name}}, State: lease.Free}, nil
	}
	if err == nil {
		w.failed = 0
	}
	return r, err
}

// isFinal reports whether err is the server's verdict on the request, which a retry cannot change.
func isFinal(err error) bool {
	return errors.Is(err, leasehttp.ErrDenied) || errors.Is(err, lease.ErrInvalid)
}

// fail records a failed query, and logs the first of several.
func (w *watching) fail(err error, until time.Time) {
	if w.failed == 0 {
		attrs := []any{slog.Any("error", err)}
		if !until.IsZero() {
			attrs = []any{slog.Duration("for", time.Until(until).Round(time.Second)), attrs[0]}
		}
		w.app.Logger().Warn("the lock server cannot be used: trying again", attrs...)
	}
	w.failed++
}

// changed waits for a change of the lock since version from; nil = since now.
func (w *watching) changed(ctx context.Context, from *uint64, wait time.Duration) (lease.Record, error) {
	until := time.Now().Add(wait)
	if from == nil {
		now, err := w.next(ctx, nil, until)
		if err != nil {
			return now, err
		}
		from = &now.Version
	}
	r, err := w.next(ctx, from, until)
	if err == nil && r.Version == 0 {
		err = &lease.NotFoundError{Name: w.name}
	}
	return r, err
}

// follow prints changes since version from, until ctx ends; nil = the current state, and changes
// since then. The first query must succeed.
func (w *watching) follow(ctx context.Context, from *uint64) error {
	r, err := w.look(ctx, nil, 0)
	for version := from; ; {
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the normal end
		case err != nil:
			return lockserver.Error(ctx, err)
		case version == nil || r.Version != *version:
			if err := printChange(w.app, r); err != nil {
				return err
			}
		}
		seen := r.Version
		version = &seen
		r, err = w.next(ctx, version, time.Time{})
	}
}

// A changeDocument is one change of a stream.
type changeDocument struct {
	Time time.Time `json:"time"` // when it was seen, by this machine's clock
	recordDocument
}

// printChange prints one change of a stream.
func printChange(app *program.App, r lease.Record) error {
	d := changeDocument{time.Now().UTC(), newRecordDocument(r)}
	return app.PrintChange(program.Output{Document: d, Text: func(w *bytes.Buffer) {
		fmt.Fprintf(w, "%s %s %s", d.Time.Format(time.RFC3339), program.Printable(r.Name), r.State)
		if r.Version > 0 {
			fmt.Fprintf(w, " %s, token %d, version %d", program.Printable(r.Holder), r.Token, r.Version)
		}
		if r.State == lease.Held {
			fmt.Fprintf(w, ", for %v", r.Remaining.Round(time.Millisecond))
		}
		fmt.Fprintln(w)
	}})
}
