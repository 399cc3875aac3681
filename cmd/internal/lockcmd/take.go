package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/session"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A taking is how run and try take a lock.
type taking struct {
	shared       bool
	conflictCode int
	sessionTTL   time.Duration
	// As in advisory.Config; no flags.
	lossDrain time.Duration
	answer    introspect.Config // its Service is lookup.CommandService

	nonblock bool          // one attempt
	wait     time.Duration // 0 = no limit
}

func (t *taking) addFlags(f *pflag.FlagSet) {
	f.BoolVarP(&t.shared, "shared", "s", false, "take the lock in shared mode: it excludes exclusive holders only")
	f.IntVarP(&t.conflictCode, "conflict-exit-code", "E", program.ExitBusy, "exit `code` when somebody else has the lock")
	f.DurationVar(&t.sessionTTL, "session-ttl", session.DefaultTTL,
		"how long the server keeps the lock of a pglatch that it cannot reach; 500ms to 24h")
}

func (t *taking) check() error {
	switch {
	case t.conflictCode < 0 || t.conflictCode > 255:
		return program.UsageError("--conflict-exit-code is %d: use 0 to 255", t.conflictCode)
	case t.wait < 0:
		return program.UsageError("--wait is %v: use a positive duration, or 0s for one attempt", t.wait)
	}
	return nil
}

// leastWait is the shortest time limit for connecting, however short --wait is.
const leastWait = time.Second

// openLocker opens a Locker for one lock. The second connection is for the query for its holder.
// Connecting counts as part of the wait.
func openLocker(ctx context.Context, app *program.App, t *taking) (*advisory.Locker, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	t.answer.Service = lookup.CommandService
	opening, began := ctx, time.Now()
	if t.wait > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeout(ctx, max(t.wait, leastWait))
		defer cancel()
	}
	l, err := advisory.Open(opening, advisory.Config{
		ConnConfig: cc, MaxConns: 2, Wait: advisory.NoTimeout, SessionTTL: t.sessionTTL, LossDrain: t.lossDrain, Answer: t.answer, Logger: app.Logger(),
	})
	if config, ok := errors.AsType[*advisory.ConfigError](err); ok && config.Field == "SessionTTL" {
		return nil, program.UsageError("--session-ttl is %v: %s", config.Value, config.Remedy)
	}
	if err != nil && ctx.Err() == nil && opening.Err() != nil {
		return nil, &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("%w within --wait %v", program.ErrNoAnswer, t.wait)}
	}
	if t.wait > 0 {
		t.wait = max(t.wait-time.Since(began), min(t.wait, leastWait))
	}
	return l, err
}

// take takes the lock. The end of ctx ends the wait, but not the lock's context: a child receives
// the corresponding signal and ends in its own way.
func take(ctx context.Context, app *program.App, t *taking, l *advisory.Locker, key namespace.Key) (*advisory.Lock, error) {
	parent, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	l = l.With(advisory.Options{Wait: t.wait, Shared: t.shared})
	acquire := l.Acquire
	if t.nonblock {
		acquire = l.TryAcquire
	}
	stopTelling := tellWait(parent, app, key)
	lock, err := acquire(parent, key)
	stopTelling()
	if !stop() && err == nil { // both at once: the interruption wins
		err = errors.Join(context.Cause(ctx), lock.Release())
	}
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, advisory.ErrHeld), errors.Is(err, advisory.ErrTimeout):
		err = &program.ExitError{Code: t.conflictCode, Err: err}
	}
	return nil, err
}
