// Package lockserver contains the common parts of commands that use a lock server or are one: the
// flags for the server and its store, and the errors.
package lockserver

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const defaultLockServer = "http://127.0.0.1:8080"

// ClientFlags are the flags that select a lock server, and how to connect to it.
type ClientFlags struct {
	URLs      []string
	tokenFile string
	tls       ClientTLS
	noTLS     bool
	Resends   int // as in leasehttp.ClientConfig; no flag
}

// AddFlags adds the flags.
func (s *ClientFlags) AddFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&s.URLs, "server", nil, "`URL` of the lock server, or of several that share a store, repeatable (default: PGLATCH_LOCK_SERVER, with commas between, else "+defaultLockServer+")")
	f.StringVar(&s.tokenFile, "auth-token-file", "", "`file` of the bearer token, its first line (default: the token in PGLATCH_LOCK_TOKEN)")
	f.StringVar(&s.tls.Authority, "tls-ca", "", "`file` of the authorities in PEM that verify the server (default: those of the system)")
	f.StringVar(&s.tls.Cert, "tls-cert", "", "`file` of the client's certificate chain in PEM, if the server requires one")
	f.StringVar(&s.tls.Key, "tls-key", "", "`file` of its key")
	f.BoolVar(&s.noTLS, "insecure-no-tls", false, "DANGER: send the token in clear text to a server that is not on this machine")
}

// Client returns a client that has not connected yet. margin is that of leasehttp.ClientConfig.
func (s *ClientFlags) Client(app *program.App, margin time.Duration) (*leasehttp.Client, error) {
	urls := s.URLs
	if len(urls) == 0 {
		urls = strings.Split(cmp.Or(os.Getenv("PGLATCH_LOCK_SERVER"), defaultLockServer), ",")
	}
	config := leasehttp.ClientConfig{
		BaseURLs: urls, Token: os.Getenv("PGLATCH_LOCK_TOKEN"),
		AllowInsecure: s.noTLS, Margin: margin, Resends: s.Resends, Logger: app.Logger(),
	}
	tokens, err := ReadTokens("--auth-token-file", s.tokenFile)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		config.Token = tokens[0].Secret
	}
	if config.TLS, err = s.tls.Config("--tls-ca", "--tls-cert and --tls-key"); err != nil {
		return nil, err
	}
	client, err := leasehttp.NewClient(config)
	if err != nil {
		return nil, program.UsageError("--server: %w", err)
	}
	return client, nil
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
