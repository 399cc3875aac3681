// Package servecmd contains the command serve.
package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// New returns the command serve, with its own stores and the given ones.
func New(app *program.App, stores []lockserver.StoreKind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve locks to programs of all languages, or a page about locks to people",
	}
	cmd.AddCommand(newLocks(app, stores), newMonitor(app))
	return cmd
}

const locksHelp = `Serve leases of locks, with fencing tokens, over HTTP until interrupted:

  POST /v1/locks/{lock}/acquire, /renew and /release, GET /v1/locks/{lock} and
  /v1/locks, /v1/openapi.json, /metrics, /healthz, /readyz

Without --store, leases are kept in a SQLite file: locks.db in $STATE_DIRECTORY (which
systemd sets), else in pglatch/ in $XDG_STATE_HOME, else in ~/.local/state/pglatch. A file
can have only one server. Any number of servers can share one PostgreSQL, where they create
their tables in the schema pglatch_lease. With the program pglatch-etcd, any number can
share one etcd cluster.

Without --auth-token-file the server answers only clients on the same machine. At
--listen unix:/run/pglatch/locks.sock it answers every program that can write to that
file: only those of its owner, unless --socket-mode allows others. On an address that is not
loopback the server needs tokens and TLS, or the flags that allow it to run without them.
The file of tokens has one token per line, of at least 16 bytes, followed by its limits. A
token without limits has every right:

  TOKEN [right=admin|hold|read|metrics] [prefix=jobs/] [name=ops]

Each right includes those after it. admin: end the leases of others, and see their ids.
hold: acquire, renew and release. read: see who has which lock. metrics: see /metrics. The
name appears in the log of what admins do. A word that begins with # starts a comment.

The file of --ttl-policy-file has one policy per line. Each bounds the TTLs of locks whose
names begin with a prefix, and sets the TTL of requests without one. The longest prefix
applies. Requests and renewals outside the bounds are refused:

  [prefix=jobs/] [min=1s] [max=10m] [default=30s]

With --tls-client-ca, clients need a certificate of one of its authorities. In the file of
tokens, a line for a certificate has, in the place of TOKEN, cert-cn:NAME for the common
name of its subject, or cert-san:NAME for a DNS name, IP address, URI or email address; *
is any name. The first matching line applies. A client that sends a token has the rights
of the token.

On SIGHUP the server reads the files of tokens, policies, certificate and authorities again.
If one is not valid, its old content stays in force. The file of --peer-token-file is read
only at the start.

Exit codes: 0 after an interrupt, once all requests in progress were answered, 69 the store
or the address cannot be used.`

// A locksCommand is one use of the command serve locks.
type locksCommand struct {
	lockserver.StoreFlags
	config             leaseserver.Config
	peers              peers
	listen, socketMode string
	tokenFile, ttlFile string
	certificates       certificates
	noAuth             bool
}

func newLocks(app *program.App, stores []lockserver.StoreKind) *cobra.Command {
	var s locksCommand
	cmd := &cobra.Command{
		Use:     "locks",
		Short:   "Serve leases with fencing tokens over HTTP",
		Long:    locksHelp,
		Example: "  pglatch serve locks\n  pglatch serve locks --store postgres://localhost/app --listen :8443 --tls-cert c.pem --tls-key k.pem --auth-token-file tokens",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), app)
		},
	}
	s.addFlags(cmd.Flags(), stores)
	return cmd
}

const defaultSocketMode = "0600"

func (s *locksCommand) addFlags(f *pflag.FlagSet, stores []lockserver.StoreKind) {
	s.StoreFlags.AddFlags(f, stores)
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "`address` to serve at, or unix:/path of a socket")
	f.StringVar(&s.socketMode, "socket-mode", defaultSocketMode, "file `mode` of the socket: programs that can write to it can connect")
	f.StringVar(&s.tokenFile, "auth-token-file", "", "`file` of the bearer tokens that clients send")
	f.StringVar(&s.ttlFile, "ttl-policy-file", "", "`file` of the bounds of TTLs, by the names of locks")
	s.certificates.addFlags(f)
	f.BoolVar(&s.noAuth, "insecure-no-auth", false, "DANGER: let everybody who can reach the address acquire, release and read every lock")
	f.DurationVar(&s.config.SweepInterval, "sweep-interval", leaseserver.DefaultSweepInterval, "how often to sweep the store: it counts expired leases, and deletes old names")
	f.DurationVar(&s.config.Retention, "retention", time.Hour, "how long the store keeps the name of a lease that has ended")
	addLimits(f, &s.config)
	s.peers.addFlags(f)
	f.DurationVar(&s.config.ShutdownTimeout, "shutdown-timeout", leaseserver.DefaultShutdownTimeout, "time limit of requests in progress after an interrupt")
}

func (s *locksCommand) run(ctx context.Context, app *program.App) (err error) {
	config := s.config
	config.AllowInsecure, config.Logger = s.noAuth || s.certificates.insecure, app.Logger()
	if config.Tokens, err = lockserver.ReadTokens("--auth-token-file", s.tokenFile); err != nil {
		return err
	}
	if config.TTLPolicies, err = lockserver.ReadTTLPolicies("--ttl-policy-file", s.ttlFile); err != nil {
		return err
	}
	if config.TLS, err = s.certificates.tls(); err != nil {
		return err
	}
	if err := cmp.Or(
		checkLimits(&config), program.Positive("sweep-interval", config.SweepInterval),
		program.Positive("retention", config.Retention), program.Positive("shutdown-timeout", config.ShutdownTimeout),
	); err != nil {
		return err
	}
	switch {
	case s.certificates.clientCA != "" && config.Tokens == nil:
		return program.UsageError("--tls-client-ca: say what certificates are good for in --auth-token-file, such as cert-cn:worker right=hold")
	case s.noAuth && config.Tokens != nil:
		return program.UsageError("--insecure-no-auth lets everybody in: give it, or --auth-token-file")
	case s.certificates.insecure && !s.noAuth && config.Tokens == nil:
		return program.UsageError("--insecure-no-tls is for tokens in clear text: give them with --auth-token-file")
	}
	socket, err := s.socket()
	if err != nil {
		return err
	}
	file := ""
	if s.Store == "" {
		if file, err = lockserver.StateFile(); err != nil {
			return err
		}
	}
	opened, err := s.Open(ctx, app, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	config.Store = opened.Store
	listener, free, err := s.listenAt(ctx, socket)
	if err != nil {
		return &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("--listen: %w", err)}
	}
	defer func() {
		_ = listener.Close()
		err = errors.Join(err, free())
	}()
	election, err := s.election(app, opened, listener.Addr(), &config)
	if err != nil {
		return err
	}
	server, err := leaseserver.New(config)
	if err != nil {
		return program.UsageError("%w", err)
	}
	if err := s.checkExposure(listener.Addr(), config); err != nil {
		return err
	}
	if election != nil {
		if err := election.Start(ctx); err != nil {
			return program.Unavailable(ctx, err)
		}
		defer election.Stop()
	}
	app.Logger().Info("serving", slog.String("address", addressOf(listener)), slog.String("store", opened.Name))
	if s.noAuth {
		app.Logger().Warn("EVERYBODY WHO CAN REACH THIS ADDRESS CAN TAKE AND RELEASE EVERY LOCK")
	}
	defer s.reload(ctx, app, server)()
	return server.Serve(ctx, listener)
}

func (s *locksCommand) listenAt(ctx context.Context, at *socket) (listener net.Listener, free func() error, err error) {
	if at != nil {
		return at.listen(ctx)
	}
	listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	return listener, func() error { return nil }, err
}

// addressOf returns the address for a client's --server, but without the scheme for TCP.
func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// checkExposure names missing flags; leaseserver has the same rule.
func (s *locksCommand) checkExposure(address net.Addr, config leaseserver.Config) error {
	if loopback.Listens(address) {
		return nil
	}
	switch {
	case config.Tokens == nil && !s.noAuth:
		return program.UsageError("--listen is %s, which others can reach: give --auth-token-file, or --insecure-no-auth to let everybody in", s.listen)
	case config.TLS == nil && !config.AllowInsecure:
		return clearTextError(s.listen)
	}
	return nil
}
