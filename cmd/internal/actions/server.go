// Package actions lets people act from the monitor's page: each by a token or certificate and its role, after a
// confirmation, with a line in the audit. The actions are those of the commands.
package actions

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/internal/ratelimit"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor"
)

// A Config sets up a Server.
type Config struct {
	People []Person
	Audit  string // the file's name; "" = people look, and do nothing
	Logger *slog.Logger
}

// A Database is one whose page has actions.
type Database struct {
	App      *program.App // its database is this one
	Name     string       // in the audit; "" = there is only one
	Snapshot func(context.Context) (monitor.Snapshot, error)
	// Leases returns a client of the lock server whose leases people may end. nil = those of the store in the database.
	Leases     func() (*leasehttp.Client, error)
	LockServer string // its name for people
}

// A Server knows the people who may use the monitor's page, and acts for them.
type Server struct {
	config   Config
	people   atomic.Pointer[people]
	sessions sessions
	pending  tickets[confirmation]
	audit    *audit // nil = there are no actions
	limiter  *ratelimit.Limiter
	origin   *http.CrossOriginProtection
	room     chan struct{} // of actions that use the database
	running  sync.WaitGroup
}

const (
	perSecond, burst = 5, 40 // requests of one address that are not plain reads of somebody who is known
	atOnce           = 4     // actions
)

// New returns a Server. The caller closes it when its handlers have returned.
func New(c Config) (*Server, error) {
	s := &Server{
		config: c, sessions: sessions{tickets[bearer.Credential]{lasts: sessionLasts, evicts: true}}, pending: tickets[confirmation]{lasts: confirmWithin}, limiter: ratelimit.New(perSecond, burst), origin: http.NewCrossOriginProtection(), room: make(chan struct{}, atOnce),
	}
	s.people.Store(newPeople(c.People))
	if c.Audit == "" {
		return s, nil
	}
	var err error
	if s.audit, err = openAudit(c.Audit); err != nil {
		return nil, err
	}
	return s, nil
}

// SetPeople replaces the people, from the next request on. Views that are kept up to date end, and come again if their
// viewers may still look.
func (s *Server) SetPeople(all []Person) { s.people.Swap(newPeople(all)).end() }

// ReopenAudit opens the audit's file again by its name. With an error the old one stays in use.
func (s *Server) ReopenAudit() error {
	if s.audit == nil {
		return nil
	}
	return s.audit.reopen()
}

// Close waits for actions that run, and closes the audit.
func (s *Server) Close() error {
	s.running.Wait()
	s.people.Load().end()
	if s.audit == nil {
		return nil
	}
	return s.audit.close()
}

// prepare plans a request for a person, and returns what the person is to confirm.
func (s *Server) prepare(ctx context.Context, d *Database, who *Person, k *kind, r Request) (preview, error) {
	var shown *plan
	err := s.with(ctx, d, func(l *lookup.Looker) (err error) {
		shown, err = k.plan(ctx, d, l, r)
		return err
	})
	if err != nil {
		return preview{}, err
	}
	return s.show(d, who, r, shown)
}

// A preview is a plan as the page shows it.
type preview struct {
	Confirm string   `json:"confirm"`
	Title   string   `json:"title"`
	Effect  []string `json:"effect"`
	Changed bool     `json:"changed,omitempty"` // since the person confirmed another one
}

func (s *Server) show(d *Database, who *Person, r Request, p *plan) (preview, error) {
	id, ok := s.pending.add(confirmation{d, who.Name, r, p})
	if !ok {
		return preview{}, errManyConfirmations
	}
	return preview{Confirm: id, Title: p.title, Effect: append(d.where(r), p.lines...)}, nil
}

// where says on which of several databases an action is. Somebody may look at a page that was loaded before the
// monitor was started with other labels.
func (d *Database) where(r Request) []string {
	if d.Name == "" || r.Action == forceRelease && d.Leases != nil {
		return nil
	}
	return []string{fmt.Sprintf("It is on the database %s: %s.", d.Name, d.place())}
}

// place says where the database is. Its label may have been that of another one.
func (d *Database) place() string {
	cc, err := d.App.ConnConfig()
	if err != nil {
		return "unknown" // its file of a password is gone
	}
	return quoted(cc.Database) + " on " + net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port)))
}

// A result is what became of an action.
type result struct {
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// perform does what a person confirmed, unless it would end more by now: then the result is nil and the preview new.
func (s *Server) perform(ctx context.Context, d *Database, who *Person, c confirmation, e Entry) (done *result, again preview, err error) {
	err = s.with(ctx, d, func(l *lookup.Looker) error {
		now, err := d.kindOf(c.request.Action).plan(ctx, d, l, c.request)
		if err != nil {
			return err
		}
		if !now.within(c.shown) {
			again, err = s.show(d, who, c.request, now)
			again.Changed = true
			return err
		}
		e.Outcome = begun
		if err := s.audit.add(e); err != nil {
			return &program.ExitError{Code: program.ExitInternal, Err: fmt.Errorf("nothing was done, because the audit cannot be written: %w", err)}
		}
		done = s.run(ctx, now, e)
		return nil
	})
	return done, again, err
}

// run runs a plan whose beginning is in the audit.
func (s *Server) run(ctx context.Context, p *plan, e Entry) *result {
	text, err := p.run(ctx, e.Who+": "+e.Why)
	e.Outcome, e.Detail = outcome(err), text
	if err != nil {
		if e.Detail != "" {
			e.Detail += "; "
		}
		e.Detail += program.OneLine(err.Error())
	}
	if err := s.audit.add(e); err != nil {
		s.config.Logger.Error("an action is not in the audit", slog.String("id", e.ID), slog.String("who", e.Who), slog.String("action", e.Action),
			slog.String("target", e.Target), slog.String("outcome", e.Outcome), slog.Any("error", err))
	}
	return &result{e.Outcome, e.Detail}
}

// outcome returns what an error says about an action that began.
func outcome(err error) string {
	switch program.Code(err) {
	case program.ExitOK:
		return done
	case program.ExitUsage, program.ExitFree, program.ExitRefused, program.ExitBusy, program.ExitLost:
		return failed
	}
	return unknown
}

// with calls do with a Looker, while few others have one.
func (s *Server) with(ctx context.Context, d *Database, do func(*lookup.Looker) error) error {
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l, err := lookup.Open(d.App, nil, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	return do(l)
}
