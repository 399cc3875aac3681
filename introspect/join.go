package introspect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pgsession"
)

// A Source answers for a part of a process: a Locker, or an election. Its methods are called by one goroutine
// at a time and must not block.
type Source interface {
	// Connected reports whether the source has a connection to the database. Without one it has nothing to
	// report. Connected must not wait for a mutex that is held when Membership.Connected is called.
	Connected() bool
	// Answer adds the source's part to an answer: what the question asks for.
	Answer(q Question, into *Answer)
	// Request carries out a request and reports on it. nil = the request does not concern the source.
	Request(r Request) []Reply
}

// A Member says how a Source answers. Lockers and Electors join by themselves.
type Member struct {
	// Conn says which database to connect to, and how.
	Conn          *pgx.ConnConfig
	BeforeConnect func(context.Context, *pgx.ConnConfig) error
	Connect       func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error) // nil = pgx.ConnectConfig
	// ApplicationName is the name of the source's own sessions.
	ApplicationName string
	Config          Config
	Source          Source
	Logger          *slog.Logger // receives requests, and failures to answer (Info). nil = discard
}

// A Membership is a Source that answers. A nil Membership does not answer.
type Membership struct {
	Member
	of    *responder
	place int // among those that joined
}

var registry struct {
	sync.Mutex
	responders map[string]*responder // by the database and role that they connect to
}

// Join makes a source answer, from a second after the first Connected on. If the Config is Off, Join returns
// nil. Leave ends the membership.
func Join(m Member) *Membership {
	if m.Config.Off {
		return nil
	}
	m.Logger = background.Logger(m.Logger)
	registry.Lock()
	defer registry.Unlock()
	id := fmt.Sprintf("%s:%d/%s@%s", m.Conn.Host, m.Conn.Port, m.Conn.Database, m.Conn.User)
	r := registry.responders[id]
	if r == nil {
		r = &responder{id: id, members: make(map[*Membership]struct{})}
		if registry.responders == nil {
			registry.responders = make(map[string]*responder)
		}
		registry.responders[id] = r
	}
	member := &Membership{Member: m, of: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined++
	member.place = r.joined
	r.members[member] = struct{}{}
	return member
}

// Connected reports that the source has opened, or is opening, a connection. The call is cheap.
func (m *Membership) Connected() {
	if m == nil {
		return
	}
	m.of.start(m)
}

// Leave ends the membership. When it returns, the source is not called any more, and nothing is left that
// only this membership needed.
func (m *Membership) Leave() {
	if m == nil {
		return
	}
	registry.Lock()
	r := m.of
	r.mu.Lock()
	delete(r.members, m)
	last := len(r.members) == 0
	if last {
		delete(registry.responders, r.id)
		if r.cancel != nil {
			r.cancel()
		}
	}
	r.mu.Unlock()
	registry.Unlock()
	r.calls.Lock()   // a call that is under way
	r.calls.Unlock() //nolint:staticcheck // see above
	if last {
		r.work.Wait()
	}
}

// dialer returns the dialer of the connection that listens.
func (m *Membership) dialer() *pgsession.Dialer {
	return pgsession.NewDialer(pgsession.Config{
		ConnConfig:      m.Conn,
		BeforeConnect:   m.BeforeConnect,
		Connect:         m.Connect,
		T:               time.Minute,
		ApplicationName: pgsession.ApplicationName(ListenerPrefix + cmp.Or(m.ApplicationName, pgsession.ProcessName())),
	})
}
