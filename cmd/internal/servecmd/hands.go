package servecmd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/actions"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor"
)

// hands are the settings of people and their actions on the monitor's page.
type hands struct {
	actions           bool
	peopleFile, audit string
	lockServer        string
	certificates      certificates
	people            []actions.Person
	server            *actions.Server // nil = nobody signs in
	tls               *tls.Config
}

func (h *hands) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&h.actions, "actions", false, "let people act from the page, by their roles; needs --auth-token-file and --audit-file")
	f.StringVar(&h.peopleFile, "auth-token-file", "", "`file` of people: their tokens, roles and names")
	f.StringVar(&h.audit, "audit-file", "", "`file` to which each action and refusal is added, as a line of JSON")
	f.StringVar(&h.lockServer, "lock-server", "", "`URL` of the lock server whose leases people may end, with the token in PGLATCH_LOCK_TOKEN (default: those in the database)")
	h.certificates.addFlags(f)
}

// read reads the files.
func (h *hands) read() (err error) {
	switch {
	case h.actions && h.peopleFile == "":
		return program.UsageError("--actions: say who may act with --auth-token-file")
	case h.actions && h.audit == "":
		return program.UsageError("--actions: say where the audit is kept with --audit-file")
	case !h.actions && h.lockServer != "":
		return program.UsageError("--lock-server is for --actions: give both")
	case !h.actions && h.audit != "":
		return program.UsageError("--audit-file is for --actions: give both")
	case h.peopleFile == "" && (h.certificates.file != "" || h.certificates.key != "" || h.certificates.clientCA != "" || h.certificates.insecure):
		return program.UsageError("TLS is for people who sign in: say who may look with --auth-token-file")
	}
	if h.peopleFile == "" {
		return nil
	}
	if h.people, err = actions.ReadPeople("--auth-token-file", h.peopleFile); err != nil {
		return err
	}
	h.tls, err = h.certificates.tls()
	return err
}

// checkExposure refuses an address that others can reach without tokens and TLS.
func (h *hands) checkExposure(listen string, address net.Addr) error {
	switch {
	case loopback.Listens(address):
		return nil
	case h.people == nil:
		return program.UsageError("--listen is %s, which others can reach, and nobody else is let in: use a loopback address, or give --auth-token-file", listen)
	case h.tls == nil && !h.certificates.insecure:
		return clearTextError(listen)
	}
	return nil
}

// open prepares the people and the audit, and rereads the files at each SIGHUP until they are closed. wrap lets only the
// people in.
func (h *hands) open(ctx context.Context, app *program.App) (wrap func(http.Handler) http.Handler, closeAll func() error, err error) {
	if h.people == nil {
		return func(next http.Handler) http.Handler { return next }, func() error { return nil }, nil
	}
	if h.server, err = actions.New(actions.Config{People: h.people, Audit: h.audit, Logger: app.Logger()}); err != nil {
		return nil, nil, program.UsageError("--audit-file: %w", err)
	}
	stop := atHangup(ctx, app, true, func(said saidFunc) { h.readAgain(said, h.server) })
	return h.server.Wrap, func() error {
		stop()
		return h.server.Close()
	}, nil
}

// actOn gives the page of a database its actions, after open. The database is that of app; its name is for the audit.
func (h *hands) actOn(app *program.App, name string, config *monitor.Config, snapshot func(context.Context) (monitor.Snapshot, error)) {
	if h.server == nil {
		return
	}
	config.Authorize = monitor.AllowAll // wrap has let in the people alone
	if !h.actions {
		return
	}
	d := actions.Database{App: app, Name: name, Snapshot: snapshot}
	if h.lockServer != "" {
		d.LockServer = program.Printable(h.lockServer)
		d.Leases = func() (*leasehttp.Client, error) {
			flags := lockserver.ClientFlags{URLs: strings.Split(h.lockServer, ",")}
			return flags.Client(app, 0)
		}
	}
	config.Actions = h.server.Handler(d)
}

func (h *hands) readAgain(said saidFunc, server *actions.Server) {
	people, err := actions.ReadPeople("--auth-token-file", h.peopleFile)
	if err == nil {
		server.SetPeople(people)
	}
	said("people", err)
	h.certificates.readAgain(said)
	if h.actions {
		said("audit", server.ReopenAudit())
	}
}

func (h *hands) scheme() string {
	if h.tls != nil {
		return "https"
	}
	return "http"
}

// listener returns the listener with TLS, if there is TLS.
func (h *hands) listener(l net.Listener) net.Listener {
	if h.tls == nil {
		return l
	}
	return tls.NewListener(l, h.tls)
}
