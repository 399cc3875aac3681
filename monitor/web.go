package monitor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/monitor/internal/web"
)

// pageEvery is the update interval of a Page with viewers.
const pageEvery = time.Second

// Page returns a handler for a web page, to mount at any path that ends in a slash, stripped or not. The page
// shows which keys are held, by which holders and since when, and which waiters wait for them. It also shows
// elections, leases, the events of the last hour, and what is wrong (Verdict).
//
//	http.Handle("/locks/", m.Page())
//
// The page is complete without JavaScript. With JavaScript, server-sent events keep it up to date; a server's WriteTimeout does not end them. All that it
// loads comes from the handler, under a Content-Security-Policy that allows no inline style or script. The page changes nothing. Below it are also two
// files: verdicts, a list in JSON, and metrics, the gauge pglatch_verdict for Prometheus, with the labels name, severity and database. Config.Authorize
// decides who has access; by default, only clients on the same host have.
func (m *Monitor) Page() http.Handler { return m.page("") }

// page returns the Page. home is the address of the list of databases; "" = none.
func (m *Monitor) page(home string) http.Handler {
	config := web.Config{
		Name:      m.name(),
		Label:     m.config.Name,
		Home:      home,
		Look:      m.state,
		Next:      m.next,
		Refuse:    func(w http.ResponseWriter, status int, detail string) { refuse(w, status, 0, detail) },
		Recording: m.config.Record > 0,
		Actions:   m.config.Actions != nil,
	}
	if m.config.Leases != nil {
		config.Leases = m.config.Leases.List
	}
	p := web.New(config)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if err := m.config.Authorize(r, ActionView); err != nil {
			refuse(w, http.StatusForbidden, 0, err.Error())
			return
		}
		if m.acts(r) {
			m.config.Actions.ServeHTTP(w, r)
			return
		}
		p.ServeHTTP(w, r)
	})
}

// name is the value of the label database.
func (m *Monitor) name() string {
	return cmp.Or(m.config.Name, fmt.Sprintf("%s:%d/%s", m.connConfig.Host, m.connConfig.Port, m.connConfig.Database))
}

// state returns the newest flight, as the page shows it.
func (m *Monitor) state(ctx context.Context) (*web.State, error) {
	f, err := m.lookCloser(ctx)
	if err != nil {
		return nil, err
	}
	return f.state(m.config.Fleet != nil), nil
}

// state is built once, for all viewers. tables: a Fleet is to be read.
func (f *flight) state(tables bool) *web.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shown == nil {
		f.shown = &web.State{Picture: f.picture, Verdicts: f.verdicts, Past: f.past, Fleet: f.fleet, Tables: tables, Sorted: incident.ByTrouble(f.picture, f.verdicts), Ended: f.Ended()}
	}
	return f.shown
}

// next waits until the last State is a second old, so that all viewers ask at the same time and share a query.
// nil = none yet.
func (m *Monitor) next(ctx context.Context, last *web.State) (*web.State, error) {
	if last != nil {
		select {
		case <-time.After(time.Until(last.Ended.Add(pageEvery))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.lifetime.Done():
			return nil, ErrClosed
		}
	}
	return m.state(ctx)
}
