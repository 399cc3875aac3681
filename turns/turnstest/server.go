package turnstest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A Server stands in for one PostgreSQL database with the schema of package turns. It is safe for concurrent use, and
// needs no Close.
type Server struct {
	locks *advisorytest.Server

	mu         sync.Mutex
	store      store
	sessions   map[uint32]*session
	lastPID    uint32
	changed    chan struct{} // closed when a transaction has ended
	statements []Statement
}

// NewServer returns a server without messages.
func NewServer() *Server {
	return &Server{
		locks: advisorytest.NewServer(), sessions: map[uint32]*session{}, changed: make(chan struct{}),
		store: store{boxes: map[string]*box{}},
	}
}

// A Statement is a statement that the test's program sent to the server.
type Statement struct {
	SQL  string
	Args []string // as the driver wrote them; NULL is "NULL"
}

// Statements returns the statements whose transactions were committed, in the order of the commits.
func (s *Server) Statements() []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Statement(nil), s.statements...)
}

// Locks returns the server of the Lockers. Tests use it to end sessions and to inspect locks.
func (s *Server) Locks() *advisorytest.Server { return s.locks }

// A Process is a program with a mailbox, and with connections of its own.
type Process struct {
	*turns.Mailbox
	Pool   *pgxpool.Pool
	Locker *advisory.Locker
}

// Open returns a process on the server, and makes its mailbox. It sets the Config's Pool, and its Locker if that is nil. The
// test must Close the process.
func (s *Server) Open(config turns.Config) (*Process, error) {
	cc, err := pgxpool.ParseConfig("postgres://turnstest@turnstest/turnstest?sslmode=disable&default_query_exec_mode=exec&pool_max_conns=100")
	if err != nil {
		return nil, err
	}
	cc.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) { return s.dial(), nil }
	cc.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	ctx := context.Background()
	p := &Process{}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, cc); err != nil {
		return nil, err
	}
	if p.Locker = config.Locker; p.Locker == nil {
		p.Locker, err = s.locks.Open(advisory.Config{LocksPerConn: 100, ApplicationName: cmp.Or(config.Node, "turnstest")})
	}
	config.Pool, config.Locker = p.Pool, p.Locker
	if err == nil {
		p.Mailbox, err = turns.Open(ctx, config)
	}
	if err == nil {
		err = p.Migrate(ctx)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close closes the pool and the Locker. Serve must have returned.
func (p *Process) Close() {
	p.Pool.Close()
	if p.Locker != nil {
		p.Locker.Close()
	}
}

// Post sends a message in a transaction of its own.
func (p *Process) Post(ctx context.Context, entity namespace.Key, message turns.Message) (ticket turns.Ticket, err error) {
	err = pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) (err error) {
		ticket, err = p.Send(ctx, tx, entity, message)
		return err
	})
	return ticket, err
}

// dial connects a client.
func (s *Server) dial() net.Conn {
	client, server := net.Pipe()
	x := &session{server: s, conn: server, ended: make(chan struct{}), wake: make(chan struct{}, 1), listening: map[string]bool{}, canceled: make(chan struct{}, 1)}
	go x.write()
	go x.serve()
	return client
}

// notify sends a notification to the listening sessions. The caller holds mu.
func (s *Server) notify(mailbox, payload string) {
	for _, x := range s.sessions {
		if channel := "pglatch_turns/" + mailbox; x.listening[channel] {
			x.send(notification(channel, payload))
		}
	}
}

// broadcast wakes the sessions that wait for locks. The caller holds mu.
func (s *Server) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// alive reports whether somebody holds the lock of a node.
func (s *Server) alive(key int64) bool {
	for _, h := range s.locks.Holders(namespace.SingleRaw(key)) {
		if !h.Shared {
			return true
		}
	}
	return false
}

func missing(name string) error {
	return &failure{"42883", fmt.Sprintf("turnstest has no function %s: this test needs a PostgreSQL", name)}
}
