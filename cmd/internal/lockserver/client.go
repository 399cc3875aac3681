// Package lockserver contains the common parts of commands that use a lock server or are one: the
// flags for the server and its store, and the errors.
package lockserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const defaultLockServer = "http://127.0.0.1:8080"

// ClientFlags are the flags that select a lock server, and how to connect to it.
type ClientFlags struct {
	URLs      []string
	tokenFile string
	authority string
	cert, key string
	noTLS     bool
	Resends   int // as in leasehttp.ClientConfig; no flag
}

// AddFlags adds the flags.
func (s *ClientFlags) AddFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&s.URLs, "server", nil, "`URL` of the lock server, or of several that share a store, repeatable (default: PGLATCH_LOCK_SERVER, with commas between, else "+defaultLockServer+")")
	s.addTokenFlag(f)
	f.StringVar(&s.authority, "tls-ca", "", "`file` of the authorities in PEM that verify the server (default: those of the system)")
	f.StringVar(&s.cert, "tls-cert", "", "`file` of the client's certificate chain in PEM, if the server requires one")
	f.StringVar(&s.key, "tls-key", "", "`file` of its key")
	f.BoolVar(&s.noTLS, "insecure-no-tls", false, "DANGER: send the token in clear text to a server that is not on this machine")
}

func (s *ClientFlags) addTokenFlag(f *pflag.FlagSet) {
	f.StringVar(&s.tokenFile, "auth-token-file", "", "`file` of the bearer token, its first line (default: the token in PGLATCH_LOCK_TOKEN)")
}

// Client returns a client that has not connected yet. margin is that of leasehttp.ClientConfig.
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

// firstContact is how long a command that waits for a lock without a bound tries to reach a server.
// A restarting server is back by then, and the command does not wait forever for a wrong address.
const firstContact = 30 * time.Second

// getUntil queries the lease of a name, at most until then. A server that accepts connections and
// never answers would otherwise use up the client's own timeout. If until is zero, only that
// timeout bounds the query.
func getUntil(ctx context.Context, client *leasehttp.Client, name string, until time.Time) (lease.Record, error) {
	if until.IsZero() {
		return client.Get(ctx, name)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, until, errNoAnswer)
	defer cancel()
	return client.Get(ctx, name)
}

var errNoAnswer = errors.New("no answer in time")

// Reach checks whether a usable server exists, and retries until then. If until is zero, it tries
// once.
func Reach(ctx context.Context, app *program.App, client *leasehttp.Client, name string, until time.Time) error {
	for attempt := 0; ; attempt++ {
		_, err := getUntil(ctx, client, name, until)
		if err == nil || errors.Is(err, lease.ErrNotFound) {
			return nil
		}
		wait := pause.Backoff(attempt, 100*time.Millisecond, time.Second)
		if IsFinal(err) || ctx.Err() != nil || time.Until(until) < wait {
			return err
		}
		if attempt == 0 {
			app.Logger().Warn("the lock server cannot be used: trying again", slog.Duration("for", time.Until(until).Round(time.Second)), slog.Any("error", err))
		}
		_ = pause.For(ctx, wait) // the next attempt reports that ctx ended
	}
}

// IsFinal reports whether err is the server's verdict on the request, which a retry cannot change.
func IsFinal(err error) bool {
	return errors.Is(err, leasehttp.ErrDenied) || errors.Is(err, lease.ErrInvalid)
}

// A Share is the requested share of a lock that several can hold; see leasehttp.AcquireOptions.
// Zero = an ordinary lease.
type Share struct {
	Slots             int
	Shared, Exclusive bool
}

// Acquire acquires a lease. It waits for the lease, and for the server, as w says.
func Acquire(ctx context.Context, app *program.App, client *leasehttp.Client, w program.Waiting, r lease.AcquireRequest, s Share) (*leasehttp.Lease, error) {
	o := leasehttp.AcquireOptions{
		Slots: s.Slots, Shared: s.Shared, Exclusive: s.Exclusive,
		TTL: r.TTL, Metadata: r.Metadata, LockDelay: r.LockDelay, MinHold: r.MinHold, IdempotencyKey: r.IdempotencyKey, MaxWait: -1,
	}
	end := time.Now().Add(firstContact)
	if w.Bounded {
		end = time.Now().Add(w.Wait)
	}
	if w.Once() {
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

// Error gives an error of the lock server its exit code. If ctx was interrupted, the interruption
// counts instead.
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
		{lease.ErrBusy, program.ExitUnavailable}, // so that 75 means that the lock is held
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
