package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

const defaultLockServer = "http://127.0.0.1:8080"

// lockServer are the flags that say which lock server to ask, and how.
type lockServer struct {
	url       string
	tokenFile string
	authority string
	noTLS     bool
	resends   int // as of leasehttp.ClientConfig; no flag
}

func (s *lockServer) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.url, "server", "", "`URL` of the lock server (default: PGLATCH_LOCK_SERVER, else "+defaultLockServer+")")
	s.addTokenFlag(f)
	f.StringVar(&s.authority, "tls-ca", "", "`file` of the certificates in PEM that vouch for the server's (default: those of the system)")
	f.BoolVar(&s.noTLS, "insecure-no-tls", false, "DANGER: send the token in clear text to a server that is not on this machine")
}

func (s *lockServer) addTokenFlag(f *pflag.FlagSet) {
	f.StringVar(&s.tokenFile, "auth-token-file", "", "`file` of the bearer token, its first line (default: the token in PGLATCH_LOCK_TOKEN)")
}

// client returns a client that has not connected yet. margin is that of
// leasehttp.ClientConfig.
func (s *lockServer) client(app *App, margin time.Duration) (*leasehttp.Client, error) {
	config := leasehttp.ClientConfig{
		BaseURL: cmp.Or(s.url, app.Getenv("PGLATCH_LOCK_SERVER"), defaultLockServer), Token: app.Getenv("PGLATCH_LOCK_TOKEN"),
		AllowInsecure: s.noTLS, Margin: margin, Resends: s.resends,
	}
	tokens, err := readTokens("--auth-token-file", s.tokenFile)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		config.Token = tokens[0]
	}
	if s.authority != "" {
		if config.HTTPClient, err = trusting(s.authority); err != nil {
			return nil, err
		}
	}
	client, err := leasehttp.NewClient(config)
	if err != nil {
		return nil, usageError("--server: %w", err)
	}
	return client, nil
}

// probe finds out whether there is a server that answers.
func probe(ctx context.Context, client *leasehttp.Client, name string) error {
	_, err := client.Get(ctx, name)
	if errors.Is(err, lease.ErrNotFound) {
		return nil
	}
	return err
}

// trusting makes a client that trusts the certificates of a file alone.
func trusting(file string) (*http.Client, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, usageError("--tls-ca: %s has no certificate in PEM", file)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: defaultConnectTimeout}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: defaultConnectTimeout,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     time.Minute,
	}}, nil
}

// leaseError gives an error of the lock server its exit code; the interruption of
// ctx is stronger.
func leaseError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, c := range []struct {
		is   error
		code int
	}{
		{lease.ErrHeld, ExitBusy},
		{lease.ErrBusy, ExitBusy},
		{lease.ErrStale, ExitLost},
		{lease.ErrExpired, ExitLost},
		{lease.ErrNotFound, ExitLost},
		{lease.ErrInvalid, ExitUsage},
		{err, ExitUnavailable},
	} {
		if err != nil && errors.Is(err, c.is) {
			return &ExitError{c.code, err}
		}
	}
	return nil
}
