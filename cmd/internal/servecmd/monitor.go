package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/fleetreader"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
)

const monitorHelp = `Serve the page for incidents by HTTP until interrupted: which keys are held since
when, who waits, who waits for whom, elections, what happened in the last hour,
and what is wrong, with advice (docs/how-to/incidents.md).

  /            the page
  /verdicts    what is wrong, as JSON
  /metrics     the gauge pglatch_verdict for Prometheus
  /api/advisory-locks   the list of locks, as JSON

Without --auth-token-file it answers only clients on the same machine, and --listen is a
loopback address: to look from elsewhere, forward a port (ssh -L), or mount monitor.Page in
a program that knows its users. It changes nothing. It looks each --record also while nobody
does, so that the past is known.

With --auth-token-file, everybody signs in. The file has one person a line:

  TOKEN role=look|ask|end name=ann

sha256:HEX stands for the token with that digest. With --tls-client-ca, cert-cn:NAME and
cert-san:NAME stand for client certificates, as for serve locks. On an address that
is not loopback the page needs TLS too.

With --actions, people act from the page (docs/how-to/act-from-the-page.md): who has the role
ask asks processes to release a lock, to log where they stand, and to resign. Who has the
role end does what nobody can refuse, such as ending a session. --audit-file gets a line of
JSON for each action and refusal. Without it being written, nothing is done.

On SIGHUP the files of people, certificate and authorities are read again, and the audit's
file is opened again. If one is not valid, what was is kept.

Exit codes: 0 after an interrupt, 69 the address cannot be used. A database that is
away is said on the page.`

// A monitorCommand is one use of the command serve monitor.
type monitorCommand struct {
	listen       string
	record, long time.Duration
	noQuestions  bool
	hands        hands
}

func newMonitor(app *program.App) *cobra.Command {
	var s monitorCommand
	cmd := &cobra.Command{
		Use:     "monitor",
		Short:   "Serve a page to keep open during an incident",
		Long:    monitorHelp,
		Example: "  pglatch serve monitor\n  pglatch serve monitor --listen 127.0.0.1:9000 --record 5s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), app)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8081", "loopback `address` to serve at")
	f.DurationVar(&s.record, "record", 2*time.Second, "interval of queries while there are no viewers; 0 = none")
	f.DurationVar(&s.long, "long-hold", 5*time.Minute, "hold time from which a lock gets a verdict")
	f.BoolVar(&s.noQuestions, "no-questions", false, "do not ask the processes that hold locks (NOTIFY)")
	s.hands.addFlags(f)
	return cmd
}

func (s *monitorCommand) run(ctx context.Context, app *program.App) (err error) {
	switch {
	case s.record < 0:
		return program.UsageError("--record is %v: use a positive duration, or 0", s.record)
	case s.long <= 0:
		return program.UsageError("--long-hold is %v: use a positive duration", s.long)
	}
	if err := s.hands.read(); err != nil {
		return err
	}
	cc, err := app.ConnConfig()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("--listen: %w", err)}
	}
	defer func() { _ = listener.Close() }()
	if err := s.hands.checkExposure(s.listen, listener.Addr()); err != nil {
		return err
	}
	reader := fleetreader.New(cc)
	defer reader.Close()
	config := monitor.Config{
		ConnConfig: cc, Namespaces: app.Namespaces(), Record: s.record, LongHold: s.long, NoQuestions: s.noQuestions, Fleet: reader.Read, Logger: app.Logger(),
	}
	wrap, closeHands, err := s.hands.open(ctx, app)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeHands()) }()
	var m *monitor.Monitor
	s.hands.actOn(app, "", &config, func(ctx context.Context) (monitor.Snapshot, error) { return m.Snapshot(ctx) })
	if m, err = monitor.Open(config); err != nil {
		return err
	}
	defer m.Close()
	app.Logger().Info("serving", slog.String("address", listener.Addr().String()), slog.String("page", s.hands.scheme()+"://"+listener.Addr().String()+"/"))
	return program.Serve(ctx, s.hands.listener(listener), wrap(handler(m)))
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
