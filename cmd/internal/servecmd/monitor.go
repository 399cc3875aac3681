package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/fleetreader"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor"
)

const monitorHelp = `Serve the page for incidents over HTTP until interrupted. It shows the held keys with their
holders and waiters, deadlocks, elections, the last hour, and what is wrong, with advice
(docs/how-to/incidents.md).

  /            the page
  /verdicts    what is wrong, as JSON
  /metrics     gauges for Prometheus: pglatch_verdict, pglatch_monitor_up, and others
  /api/advisory-locks   the list of locks, as JSON

Without --auth-token-file it answers only clients on the same machine, and --listen must be a
loopback address. To view it from elsewhere, forward a port (ssh -L), or mount monitor.Page in
a program that authenticates its users. It changes nothing. It records the state at every
--record interval even if nobody views the page, so that the past is known.

With --auth-token-file, every user signs in. The file has one user per line:

  TOKEN role=look|ask|end name=ann

sha256:HEX stands for the token with that digest. With --tls-client-ca, cert-cn:NAME and
cert-san:NAME stand for client certificates, as for serve locks. On an address that
is not loopback the page needs TLS too.

With --actions, users can act from the page (docs/how-to/act-from-the-page.md). The role ask
can ask processes to release a lock, to log a stack, and to resign. The role end can also do
what no process can refuse, such as ending a session. --audit-file receives a line of JSON
for each action and refusal. If the line cannot be written, nothing is done.

On SIGHUP the files of users, certificate and authorities are read again, and the audit file
is opened again. If a file is not valid, its old content stays in force.

With several --dsn, each label=URL, the page lists the databases with their health and their
problems. Each database has a page at its label, such as /prod/. A database that is away does
not delay the others. With --server the list has lock servers too, each with its health and
its leases. The token in PGLATCH_LOCK_TOKEN needs the right to read.

Exit codes: 0 after an interrupt, 69 the address cannot be used. If a database is away, the
page shows it.`

// A monitorCommand is one use of the command serve monitor.
type monitorCommand struct {
	listen       string
	record, long time.Duration
	noQuestions  bool
	databases    []string // label=URL
	servers      []string // of locks, label=URL
	hands        hands
}

func newMonitor(app *program.App) *cobra.Command {
	var s monitorCommand
	cmd := &cobra.Command{
		Use:     "monitor",
		Short:   "Serve a page that shows what is wrong, for incidents",
		Long:    monitorHelp,
		Example: "  pglatch serve monitor\n  pglatch serve monitor --listen 127.0.0.1:9000 --record 5s\n  pglatch serve monitor --dsn prod=postgres://db-1/shop --dsn staging=postgres://db-2/shop",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), app)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8081", "loopback `address` to serve at")
	for _, name := range []string{"dsn", "database-url"} {
		f.StringArrayVar(&s.databases, name, nil, "`label=URL` of a database, repeatable; the label may be left out if there is one; others may see it in the list of processes")
	}
	f.StringArrayVar(&s.servers, "server", nil, "`label=URL` of a lock server whose leases are shown, repeatable; its token is in PGLATCH_LOCK_TOKEN")
	f.DurationVar(&s.record, "record", 2*time.Second, "interval of queries while there are no viewers; 0 = none")
	f.DurationVar(&s.long, "long-hold", 5*time.Minute, "hold time from which a lock gets a verdict")
	f.BoolVar(&s.noQuestions, "no-questions", false, "do not ask the processes that hold locks (NOTIFY)")
	s.hands.addFlags(f)
	return cmd
}

func (s *monitorCommand) run(ctx context.Context, app *program.App) (err error) {
	if err := cmp.Or(program.NotNegative("record", s.record, ", or 0"), program.Positive("long-hold", s.long)); err != nil {
		return err
	}
	if err := s.hands.read(); err != nil {
		return err
	}
	sources, err := s.sources(app)
	if err != nil {
		return err
	}
	servers, closeServers, err := s.lockServers(app)
	if err != nil {
		return err
	}
	defer closeServers()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("--listen: %w", err)}
	}
	defer func() { _ = listener.Close() }()
	if err := s.hands.checkExposure(s.listen, listener.Addr()); err != nil {
		return err
	}
	wrap, closeHands, err := s.hands.open(ctx, app)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHands()) }()
	monitors := make([]*monitor.Monitor, len(sources))
	for i, from := range sources {
		reader := fleetreader.New(from.cc)
		defer reader.Close()
		config := monitor.Config{
			Name: from.label, ConnConfig: from.cc, Namespaces: app.Namespaces(), Record: s.record, LongHold: s.long, NoQuestions: s.noQuestions, Fleet: reader.Read, Logger: app.Logger(),
		}
		s.hands.actOn(from.app, from.label, &config, func(ctx context.Context) (monitor.Snapshot, error) { return monitors[i].Snapshot(ctx) })
		if monitors[i], err = monitor.Open(config); err != nil {
			return program.UsageError("%w", err)
		}
		defer monitors[i].Close()
	}
	served := handler(monitors[0])
	if len(monitors)+len(servers) > 1 {
		site, err := monitor.NewSite(monitors...)
		if err != nil {
			return program.UsageError("--dsn: %w", err)
		}
		if err := site.AddLockServers(servers...); err != nil {
			return program.UsageError("--server: %w", err)
		}
		served = site
	}
	app.Logger().Info("serving", slog.String("address", listener.Addr().String()), slog.String("page", s.hands.scheme()+"://"+listener.Addr().String()+"/"))
	return program.Serve(ctx, s.hands.listener(listener), wrap(served))
}

// A source is a database to show.
type source struct {
	label string // "" = none
	cc    *pgx.ConnConfig
	app   *program.App // for actions: its database is this one
}

// sources returns the databases of the flags, or that of the environment.
func (s *monitorCommand) sources(app *program.App) (all []source, err error) {
	if len(s.databases) == 0 {
		cc, err := app.ConnConfig()
		return []source{{s.onlyLabel(), cc, app}}, err
	}
	for _, text := range s.databases {
		label, url := labelled(text)
		if label == "" && len(s.databases) > 1 {
			return nil, program.UsageError("--dsn is given %d times: write label=URL each time, such as prod=postgres://db-1/shop", len(s.databases))
		}
		label = cmp.Or(label, s.onlyLabel())
		own := *app
		own.UseDatabase(url, "--dsn")
		cc, err := own.ConnConfig() // before actions use it at the same time
		if err != nil {
			return nil, err
		}
		all = append(all, source{label, cc, &own})
	}
	return all, nil
}

// onlyLabel is the label of a database without one, where a list has lock servers too.
func (s *monitorCommand) onlyLabel() string {
	if len(s.servers) == 0 {
		return ""
	}
	return "database"
}

// lockServers returns the lock servers of the flags, and closes their clients with the function.
func (s *monitorCommand) lockServers(app *program.App) (all []monitor.LockServer, closeAll func(), err error) {
	var clients []*leasehttp.Client
	closeAll = func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for _, text := range s.servers {
		label, url := labelled(text)
		if label == "" {
			closeAll()
			return nil, nil, program.UsageError("--server is %s: write label=URL, such as locks=https://locks.internal", program.Printable(text))
		}
		flags := lockserver.ClientFlags{URLs: strings.Split(url, ",")}
		client, err := flags.Client(app, 0)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, client)
		all = append(all, monitor.LockServer{Name: label, Leases: client})
	}
	return all, closeAll, nil
}

// labelled splits label=URL. The text may also be a connection string of the form host=db-1 dbname=shop.
func labelled(text string) (label, url string) {
	before, after, _ := strings.Cut(text, "=")
	first, _, _ := strings.Cut(after, " ")
	if !strings.Contains(before, ":") && (strings.Contains(first, "://") || strings.Contains(first, "=")) {
		return before, after
	}
	return "", text
}

// handler serves the page, and the list at its path.
func handler(m *monitor.Monitor) http.Handler {
	page, list := m.Page(), m.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, monitor.Path) {
			list.ServeHTTP(w, r)
			return
		}
		page.ServeHTTP(w, r)
	})
}
