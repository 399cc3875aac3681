package introspect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// A Source answers for a part of a process: a Locker, or an election. Its methods are called by
// one goroutine at a time and must not block.
type Source interface {
	// Connected reports whether it has a connection to the database: else it has nothing to say. It
	// must not wait for a mutex that is held when Membership.Connected is called.
	Connected() bool
	// Answer adds to an answer what is asked for.
	Answer(q Question, into *Answer)
	// Request does what is asked for and reports on it. nil = it does not concern the source.
	Request(r Request) []Reply
}

// A Member says how a Source answers. Lockers and electors are members by themselves.
type Member struct {
	// Conn is the database, and how its connections are made.
	Conn          *pgx.ConnConfig
	BeforeConnect func(context.Context, *pgx.ConnConfig) error
	Connect       func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error) // nil = pgx.ConnectConfig
	// ApplicationName is that of the source's own sessions.
	ApplicationName string
	Config          Config
	Source          Source
	Logger          *slog.Logger // gets when answering does not work, and requests (Info). nil = discard
}

// A Membership is a Source that answers. The nil Membership is one that does not.
type Membership struct {
	Member
	of *responder
}

var registry struct {
	sync.Mutex
	responders map[string]*responder // by what database and role they connect to
}

// Join makes a source one that answers, from a second after the first Connected on. The result is nil if
// its Config is Off. Leave ends it.
func Join(m Member) *Membership {
	if m.Config.Off {
		return nil
	}
	m.Logger = cmp.Or(m.Logger, slog.New(slog.DiscardHandler))
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
	r.members[member] = struct{}{}
	return member
}

// Connected tells that the source has made, or is making, a connection. It costs little.
func (m *Membership) Connected() {
	if m == nil {
		return
	}
	m.of.start(m)
}

// Leave ends the membership. When it returns the source is not called any more, and nothing that the
// membership alone needed is left.
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

// dialer makes the connection that listens.
func (m *Membership) dialer() *pgsession.Dialer {
	return pgsession.NewDialer(pgsession.Config{
		ConnConfig:      m.Conn,
		BeforeConnect:   m.BeforeConnect,
		Connect:         m.Connect,
		T:               time.Minute,
		ApplicationName: pgsession.ApplicationName(ListenerPrefix + cmp.Or(m.ApplicationName, pgsession.ProcessName())),
	})
}
