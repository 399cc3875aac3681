// Package lockserver has what commands share that ask a lock server or are one: the flags
// that name the server and its store, and the errors.
package lockserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const defaultLockServer = "http://127.0.0.1:8080"

// ClientFlags are the flags that say which lock server to ask, and how.
type ClientFlags struct {
	URLs      []string
	tokenFile string
	authority string
	cert, key string
	noTLS     bool
	Resends   int // as of leasehttp.ClientConfig; no flag
}

// AddFlags adds them.
func (s *ClientFlags) AddFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&s.URLs, "server", nil, "`URL` of the lock server, or of several that share a store, repeatable (default: PGLATCH_LOCK_SERVER, with commas between, else "+defaultLockServer+")")
	s.addTokenFlag(f)
	f.StringVar(&s.authority, "tls-ca", "", "`file` of the certificates in PEM that vouch for the server's (default: those of the system)")
	f.StringVar(&s.cert, "tls-cert", "", "`file` of the client's certificate chain in PEM, for a server that wants one")
	f.StringVar(&s.key, "tls-key", "", "`file` of its key")
	f.BoolVar(&s.noTLS, "insecure-no-tls", false, "DANGER: send the token in clear text to a server that is not on this machine")
}

func (s *ClientFlags) addTokenFlag(f *pflag.FlagSet) {
	f.StringVar(&s.tokenFile, "auth-token-file", "", "`file` of the bearer token, its first line (default: the token in PGLATCH_LOCK_TOKEN)")
}

// Client returns a client that has not connected yet. margin is that of
// leasehttp.ClientConfig.
func (s *ClientFlags) Client(app *program.App, margin time.Duration) (*leasehttp.Client, error) {
	urls := s.URLs
	if len(urls) == 0 {
		urls = strings.Split(cmp.Or(app.Getenv("PGLATCH_LOCK_SERVER"), defaultLockServer), ",")
	}
	config := leasehttp.ClientConfig{
		BaseURLs: urls, Token: app.Getenv("PGLATCH_LOCK_TOKEN"),
		AllowInsecure: s.noTLS, Margin: margin, Resends: s.Resends, Logger: app.Logger(),
	}
	tokens, err := ReadTokens("--auth-token-file", s.tokenFile)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		config.Token = tokens[0].Secret
	}
	if config.TLS, err = s.tls(); err != nil {
		return nil, err
	}
	client, err := leasehttp.NewClient(config)
	if err != nil {
		return nil, program.UsageError("--server: %w", err)
	}
	return client, nil
}

// firstContact is how long a command that waits for a lock without a bound looks for a
// server: one that restarts is back then, and a wrong address is not waited for.
const firstContact = 30 * time.Second

// getUntil asks for the lease of a name, at most until then: a server that takes
// connections and never answers would use up the client's own time, which alone bounds
// it if until is zero.
func getUntil(ctx context.Context, client *leasehttp.Client, name string, until time.Time) (lease.Record, error) {
	if until.IsZero() {
		return client.Get(ctx, name)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, until, errNoAnswer)
	defer cancel()
	return client.Get(ctx, name)
}

var errNoAnswer = errors.New("no answer in time")

// Reach finds out whether there is a server that can be used, and tries again until
// then; once, if until is zero.
func Reach(ctx context.Context, app *program.App, client *leasehttp.Client, name string, until time.Time) error {
	for attempt := 0; ; attempt++ {
		_, err := getUntil(ctx, client, name, until)
		if err == nil || errors.Is(err, lease.ErrNotFound) {
			return nil
		}
		wait := min(100*time.Millisecond<<min(attempt, 4), time.Second)
		if errors.Is(err, leasehttp.ErrDenied) || errors.Is(err, lease.ErrInvalid) || ctx.Err() != nil || time.Until(until) < wait {
			return err
		}
		if attempt == 0 {
			app.Logger().Warn("the lock server cannot be used: trying again", slog.Duration("for", time.Until(until).Round(time.Second)), slog.Any("error", err))
		}
		_ = pause.For(ctx, wait/2+rand.N(wait/2)) // the next attempt tells that ctx ended
	}
}

// Wait is how long a command waits for a lock.
type Wait struct {
	Bounded bool
	Wait    time.Duration // if bounded; 0 = one attempt
}

// A Share says what of a lock that several can hold is asked for; see leasehttp.AcquireOptions.
// Zero = an ordinary lease.
type Share struct {
	Slots             int
	Shared, Exclusive bool
}

// Acquire gets a lease, and waits for it, and for the server, as w says.
func (w Wait) Acquire(ctx context.Context, app *program.App, client *leasehttp.Client, r lease.AcquireRequest, s Share) (*leasehttp.Lease, error) {
	o := leasehttp.AcquireOptions{
		Slots: s.Slots, Shared: s.Shared, Exclusive: s.Exclusive,
		TTL: r.TTL, Metadata: r.Metadata, LockDelay: r.LockDelay, MinHold: r.MinHold, IdempotencyKey: r.IdempotencyKey, MaxWait: -1,
	}
	end := time.Now().Add(firstContact)
	if w.Bounded {
		end = time.Now().Add(w.Wait)
	}
	if w.Bounded && w.Wait == 0 {
		o.NoLongPoll, o.MaxAttempts = true, 1
	} else if err := Reach(ctx, app, client, r.Name, end); err != nil {
		return nil, err
	}
	if w.Bounded && w.Wait > 0 {
		o.MaxWait = max(time.Until(end), time.Nanosecond)
	}
	stop := tellOfWait(ctx, app, client, r.Name, s != Share{})
	defer stop()
	return client.AcquireWithRetry(ctx, r.Name, r.Holder, o)
}

// Error gives an error of the lock server its exit code; the interruption of
// ctx is stronger.
func Error(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, c := range []struct {
		is   error
		code int
	}{
		{leasehttp.ErrDenied, program.ExitRefused},
		{lease.ErrHeld, program.ExitBusy},
		{lease.ErrBusy, program.ExitUnavailable}, // so that 75 says that somebody has the lock
		{lease.ErrStale, program.ExitLost},
		{lease.ErrExpired, program.ExitLost},
		{lease.ErrNotFound, program.ExitLost},
		{lease.ErrInvalid, program.ExitUsage},
		{err, program.ExitUnavailable},
	} {
		if err != nil && errors.Is(err, c.is) {
			return &program.ExitError{Code: c.code, Err: err}
		}
	}
	return nil
}
