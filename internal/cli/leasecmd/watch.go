package leasecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/cli/lockserver"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const (
	longPoll = 20 * time.Second

	// shortestPoll is how soon a server is asked again that did not wait, as one of an
	// earlier version.
	shortestPoll = time.Second
)

var errNoAnswer = errors.New("no answer in time")

// A watching looks at a lock, and waits for changes of it.
type watching struct {
	app    *program.App
	client *leasehttp.Client
	name   string
	failed int // looks one after the other
}

// next returns what is known of the lock as soon as its version is not the one that is given,
// nil = at once. It tries again when no server can be used. The time bounds both: in the end
// what is known is returned, or why that cannot be said; zero = nothing does.
func (w *watching) next(ctx context.Context, version *uint64, until time.Time) (lease.Record, error) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until.Add(leasehttp.DefaultTimeout), errNoAnswer) // answers are on their way for a while
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
			again = min(100*time.Millisecond<<min(w.failed, 4), time.Second)
			if !until.IsZero() && time.Until(until) < again {
				return r, err
			}
			w.fail(err)
			again = again/2 + rand.N(again/2)
		case !until.IsZero():
			again = min(again, time.Until(until))
		}
		_ = pause.For(ctx, again) // the next look tells that ctx ended
	}
}

// look asks once. A lock of which nothing is known has the version 0.
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

// isFinal reports whether err is one that a server says of the request, and that time does not mend.
func isFinal(err error) bool {
	return errors.Is(err, leasehttp.ErrDenied) || errors.Is(err, lease.ErrInvalid)
}

// fail notes a look that failed, and logs the first of several.
func (w *watching) fail(err error) {
	if w.failed == 0 {
		w.app.Logger().Warn("the lock server cannot be used: trying again", slog.Any("error", err))
	}
	w.failed++
}

// changed waits for a change of the lock from a version, nil = from what is now.
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

// follow prints changes from a version on, nil = what is now, and changes from there, until ctx
// ends. The first look must succeed.
func (w *watching) follow(ctx context.Context, from *uint64) error {
	r, err := w.look(ctx, nil, 0)
	for version := from; ; {
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // this is how it ends
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

// A changeDocument is one of a stream.
type changeDocument struct {
	Time time.Time `json:"time"` // when it was seen, by this machine's clock
	recordDocument
}

// printChange prints one of a stream: json has no form for that but lines.
func printChange(app *program.App, r lease.Record) error {
	d := changeDocument{time.Now().UTC(), newRecordDocument(r)}
	if app.Format() == "json" {
		return app.PrintLine(d)
	}
	return app.Print(program.Output{Document: d, Text: program.Text(func(w *bytes.Buffer) {
		fmt.Fprintf(w, "%s %s %s", d.Time.Format(time.RFC3339), program.Printable(r.Name), r.State)
		if r.Version > 0 {
			fmt.Fprintf(w, " %s, token %d, version %d", program.Printable(r.Holder), r.Token, r.Version)
		}
		if r.State == lease.Held {
			fmt.Fprintf(w, ", for %v", r.Remaining.Round(time.Millisecond))
		}
		fmt.Fprintln(w)
	})})
}
