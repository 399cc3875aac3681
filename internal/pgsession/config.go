package pgsession

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/session"
)

// A Config sets how to open a Pool. The caller validates it and fills the defaults.
type Config struct {
	ConnConfig      *pgx.ConnConfig
	MaxSessions     int
	T               time.Duration                                // the server ends a session after T without a statement
	LossDrain       time.Duration                                // by how much the deadline is earlier than necessary
	ApplicationName string                                       // "" keeps that of ConnConfig
	BeforeConnect   func(context.Context, *pgx.ConnConfig) error // nil = none; for passwords that rotate
	Connect         ConnectFunc                                  // nil = pgx.ConnectConfig; a Pool ignores it
	Notified        func(pid uint32, payload string)             // receives each notification, with the sender's pid; nil = none
}

// A ConnectFunc makes a connection with the given settings.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// connectTimeout applies if the connection string sets no timeout: a dial to an address that never answers must
// end.
const connectTimeout = 5 * time.Second

// askAfter is the idle time after which a connection is pinged before use.
const askAfter = time.Second

func (c Config) times() renew.Times { return session.Times(c.T, c.LossDrain) }

// margin is how much earlier a holder's deadline is than the server's earliest timeout.
func (c Config) margin() time.Duration { return c.T - c.times().Trust() }

func (c Config) poolConfig(cc *pgx.ConnConfig) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig("host=localhost") // pgxpool requires a string; every setting is replaced
	if err != nil {
		return nil, err
	}
	pc.ConnConfig = cc
	pc.BeforeConnect = c.before
	// The Locker limits the sessions in use. The capacity above its limit is for connections that a dead network
	// closes late.
	pc.MaxConns = int32(2 * c.MaxSessions)
	pc.MinConns, pc.MinIdleConns = 0, 0
	pc.MaxConnLifetime, pc.MaxConnLifetimeJitter = time.Hour, 0
	// The server ends idle sessions after T: retire them first.
	pc.MaxConnIdleTime = c.T / 2
	pc.HealthCheckPeriod = c.T / 4
	pc.PingTimeout = c.statementBound()
	pc.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool {
		if params.IdleDuration < askAfter {
			return false
		}
		// A session leaves its last statement's deadline on the socket.
		_ = params.Conn.PgConn().Conn().SetDeadline(time.Time{})
		return true
	}
	return pc, nil
}

// connConfig returns the caller's connection settings, adapted for every connection of ours, whatever its
// server.
func (c Config) connConfig() *pgx.ConnConfig {
	cc := c.ConnConfig.Copy()
	outlive(cc)
	cc.ConnectTimeout = c.dialBound()
	cc.DialFunc = boundDial(cc.DialFunc, cc.ConnectTimeout)
	cc.DialFunc = checkDial(cc.DialFunc)
	cc.AfterNetConnect = receive(tuneSocket(cc.AfterNetConnect))
	cc.BuildFrontend = countFrontend(cc.BuildFrontend)
	cc.OnNotification = nil // the caller's handler would take the notifications of a listening connection
	if c.Notified != nil {
		cc.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { c.Notified(n.PID, n.Payload) }
	}
	// A watch is interrupted by its context many times in a session's life. pgx's other handler would send a
	// cancel request each time and wait for its answer.
	cc.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	return cc
}

// before calls BeforeConnect, and types its error.
func (c Config) before(ctx context.Context, cc *pgx.ConnConfig) error {
	if c.BeforeConnect == nil {
		return nil
	}
	_, err := abandon(ctx, func() (struct{}, error) { return struct{}{}, c.BeforeConnect(ctx, cc) }, func(struct{}) {})
	if err != nil {
		return &session.BeforeConnectError{Cause: err}
	}
	return nil
}

// dialBound is the limit for connecting.
func (c Config) dialBound() time.Duration {
	if c.ConnConfig.ConnectTimeout > 0 {
		return c.ConnConfig.ConnectTimeout
	}
	return connectTimeout
}

// statementBound is the limit for one statement, except the wait step, before its session is given up.
func (c Config) statementBound() time.Duration { return min(c.T, 5*time.Second) }
