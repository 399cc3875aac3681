package prove

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
)

// A pretender is a server that is PostgreSQL except for one lie. It is a proxy in front of a real one.
type pretender struct {
	lie      lie
	dsn      string // of the first server
	listener net.Listener
	ctx      context.Context // until the end of the test
	end      context.CancelFunc
	running  sync.WaitGroup
	queries  atomic.Int64

	mu       sync.Mutex
	upstream []string // the addresses of servers; connections take turns
	clients  []*client
}

// A lie is what a pretender does otherwise. Each field may be nil.
type lie struct {
	rewrite [][2]string                                                       // patterns in statements, and their replacements; %d is the number of the statement
	edit    func(*pretender, string) string                                   // a statement, after rewrite
	swallow string                                                            // a statement that is answered and not executed
	status  byte                                                              // of the transaction, after what was swallowed
	drop    func(pgproto3.BackendMessage) bool                                // messages that do not reach the client
	cancel  func(*pretender, *pgproto3.CancelRequest) *pgproto3.CancelRequest // nil = it is lost
	keeps   bool                                                              // a session that ends right after it took a lock leaves the lock
}

// A client is one connection to a pretender.
type client struct {
	of       *pretender
	conn     net.Conn
	client   *pgproto3.Backend
	server   *pgproto3.Frontend
	upstream net.Conn
	key      pgproto3.BackendKeyData
	writing  sync.Mutex // messages to the client

	mu   sync.Mutex
	last string // statement
}

// pretend starts a pretender, and returns its connection string.
func pretend(t *testing.T, l lie, dsns ...string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &pretender{lie: l, dsn: dsns[0], listener: listener}
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(t.Context()))
	for _, dsn := range dsns {
		p.upstream = append(p.upstream, host(t, dsn))
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	u, err := url.Parse(dsns[0])
	require.NoError(t, err)
	u.Host = listener.Addr().String()
	return u.String()
}

// host is the address of a server.
func host(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return u.Host
}

// change changes what is behind a pretender. Clients are not told of the ends of connections before it is over.
func (p *pretender) change(happen func(*pretender) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return happen(p)
}

// next is the address for a connection.
func (p *pretender) next(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream[n%len(p.upstream)]
}

func (p *pretender) close() {
	p.end()
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.clients {
		_ = c.conn.Close()
		_ = c.upstream.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *pretender) accept() {
	for n := 0; ; n++ {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn, n) })
	}
}

// serve carries one connection.
func (p *pretender) serve(conn net.Conn, n int) {
	defer func() { _ = conn.Close() }()
	c := &client{of: p, conn: conn, client: pgproto3.NewBackend(conn, conn)}
	first, err := c.client.ReceiveStartupMessage()
	if err != nil {
		return
	}
	address := p.next(n)
	if request, ok := first.(*pgproto3.CancelRequest); ok {
		if p.lie.cancel != nil {
			request = p.lie.cancel(p, request)
		}
		if request != nil {
			p.send(address, request)
		}
		return
	}
	if c.upstream, err = net.Dial("tcp", address); err != nil {
		return
	}
	defer func() { _ = c.upstream.Close() }()
	p.mu.Lock()
	p.clients = append(p.clients, c)
	p.mu.Unlock()
	c.server = pgproto3.NewFrontend(c.upstream, c.upstream)
	c.server.Send(first.(*pgproto3.StartupMessage))
	if c.server.Flush() != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(c.answers)
	c.questions()
	if p.lie.keeps && taken.MatchString(c.statement()) {
		p.keep(taken.FindStringSubmatch(c.statement())[1])
	}
	_ = c.upstream.Close()
	back.Wait()
}

// send delivers a cancel request, and waits until the server has done its part.
func (p *pretender) send(address string, request *pgproto3.CancelRequest) {
	upstream, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()
	message, err := request.Encode(nil)
	if err == nil {
		_, _ = upstream.Write(message)
		_, _ = upstream.Read(make([]byte, 1))
	}
}

func (c *client) statement() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// questions carries the client's messages.
func (c *client) questions() {
	for {
		message, err := c.client.Receive()
		if err != nil {
			return
		}
		if query, ok := message.(*pgproto3.Query); ok {
			l, n := c.of.lie, c.of.queries.Add(1)
			c.mu.Lock()
			c.last = query.String
			c.mu.Unlock()
			if l.swallow != "" && query.String == l.swallow {
				c.tell(&pgproto3.CommandComplete{CommandTag: []byte("ROLLBACK")}, &pgproto3.ReadyForQuery{TxStatus: l.status})
				continue
			}
			for _, r := range l.rewrite {
				by := strings.ReplaceAll(r[1], "%d", strconv.FormatInt(n, 10))
				query.String = regexp.MustCompile(r[0]).ReplaceAllString(query.String, by)
			}
			if l.edit != nil {
				query.String = l.edit(c.of, query.String)
			}
		}
		if _, ok := message.(*pgproto3.Terminate); ok {
			return
		}
		c.server.Send(message)
		if c.server.Flush() != nil {
			return
		}
	}
}

// answers carries the server's messages.
func (c *client) answers() {
	defer func() { _ = c.conn.Close() }()
	for {
		message, err := c.server.Receive()
		if err != nil {
			_ = c.of.next(0) // waits for the end of a change
			return
		}
		if data, ok := message.(*pgproto3.BackendKeyData); ok {
			c.mu.Lock()
			c.key = pgproto3.BackendKeyData{ProcessID: data.ProcessID, SecretKey: slices.Clone(data.SecretKey)}
			c.mu.Unlock()
		}
		if c.of.lie.drop == nil || !c.of.lie.drop(message) {
			c.tell(message)
		}
	}
}

func (c *client) tell(messages ...pgproto3.BackendMessage) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for _, m := range messages {
		c.client.Send(m)
	}
	_ = c.client.Flush()
}

var (
	taken  = regexp.MustCompile(`^select pg_catalog\.pg_try_advisory_lock\(([^)]*)\)`)
	waited = regexp.MustCompile(`pg_catalog\.pg_advisory_lock\(`)
)

// keep takes a lock when its session ends, before anybody else can: it is in the queue then.
func (p *pretender) keep(args string) {
	hidden, err := pgconn.Connect(p.ctx, p.dsn)
	if err != nil {
		return
	}
	judge, err := pgconn.Connect(p.ctx, p.dsn)
	if err != nil {
		return
	}
	p.running.Go(func() {
		_, _ = hidden.Exec(p.ctx, "select pg_advisory_lock("+args+")").ReadAll()
		<-p.ctx.Done()
		_ = hidden.Close(context.WithoutCancel(p.ctx))
	})
	sql := fmt.Sprintf("select from pg_locks where not granted and pid = %d", hidden.PID())
	for {
		results, err := judge.Exec(p.ctx, sql).ReadAll()
		if err != nil || len(results[0].Rows) > 0 || pause.For(p.ctx, time.Millisecond) != nil {
			break
		}
	}
	_ = judge.Close(context.WithoutCancel(p.ctx))
}

// another aims a cancel request at another client that waits.
func another(p *pretender, request *pgproto3.CancelRequest) *pgproto3.CancelRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.mu.Lock()
		waits, key := waited.MatchString(c.last), c.key
		c.mu.Unlock()
		if waits && key.ProcessID != request.ProcessID {
			return &pgproto3.CancelRequest{ProcessID: key.ProcessID, SecretKey: key.SecretKey}
		}
	}
	return request
}

func lost(*pretender, *pgproto3.CancelRequest) *pgproto3.CancelRequest { return nil }
