package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A taking is how run and try take a lock.
type taking struct {
	program.Waiting
	shared     bool
	sessionTTL time.Duration
	// As in advisory.Config; no flags.
	lossDrain time.Duration
	answer    introspect.Config // its Service is lookup.CommandService
}

func (t *taking) addFlags(f *pflag.FlagSet) {
	f.BoolVarP(&t.shared, "shared", "s", false, "take the lock in shared mode: it excludes exclusive holders only")
	f.DurationVar(&t.sessionTTL, "session-ttl", session.DefaultTTL,
		"how long the server keeps the lock of an unreachable pglatch; 500ms to 24h")
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
	if t.Wait > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeout(ctx, max(t.Wait, leastWait))
		defer cancel()
	}
	l, err := advisory.Open(opening, advisory.Config{
		ConnConfig: cc, MaxConns: 2, Wait: advisory.NoTimeout, SessionTTL: t.sessionTTL, LossDrain: t.lossDrain, Answer: t.answer, Logger: app.Logger(),
	})
	if config, ok := errors.AsType[*advisory.ConfigError](err); ok && config.Field == "SessionTTL" {
		return nil, program.UsageError("--session-ttl is %v: %s", config.Value, config.Remedy)
	}
	if err != nil && ctx.Err() == nil && opening.Err() != nil {
		return nil, &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("%w within --wait %v", program.ErrNoAnswer, t.Wait)}
	}
	if t.Wait > 0 {
		t.Wait = max(t.Wait-time.Since(began), min(t.Wait, leastWait))
	}
	return l, err
}

// take takes the lock. The end of ctx ends the wait, but not the lock's context: a child receives
// the corresponding signal and ends in its own way.
func take(ctx context.Context, app *program.App, t *taking, l *advisory.Locker, key namespace.Key) (*advisory.Lock, error) {
	parent, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	l = l.With(advisory.Options{Wait: t.Wait, Shared: t.shared})
	acquire := l.Acquire
	if t.Once() {
		acquire = l.TryAcquire
	}
	stopTelling := app.TellWait(parent, slog.String("key", key.String()), func(ctx context.Context) []slog.Attr {
		return []slog.Attr{slog.String("held_by", holders(ctx, app, key))}
	})
	lock, err := acquire(parent, key)
	stopTelling()
	if !stop() && err == nil { // both at once: the interruption wins
		err = errors.Join(context.Cause(ctx), lock.Release())
	}
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, advisory.ErrHeld), errors.Is(err, advisory.ErrTimeout):
		err = t.Conflict(err)
	}
	return nil, err
}

// holders returns the holders of a key as text for people.
func holders(ctx context.Context, app *program.App, key namespace.Key) string {
	v, err := lookup.Once(ctx, app)
	if err != nil {
		return "unknown: " + program.OneLine(err.Error())
	}
	var names []string
	for _, p := range v.Holders(key) {
		names = append(names, program.Printable(p.String()))
	}
	if names == nil {
		return "nobody at this moment"
	}
	return strings.Join(names, "; ")
}
