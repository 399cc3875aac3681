package pgsession

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/session"
)

// A Config says how to open a Pool. The caller validates it and fills the
// defaults.
type Config struct {
	ConnConfig      *pgx.ConnConfig
	MaxSessions     int
	T               time.Duration                                // the server ends a session that is silent for T
	LossDrain       time.Duration                                // the deadline is so much earlier than it must be
	ApplicationName string                                       // "" keeps that of ConnConfig
	BeforeConnect   func(context.Context, *pgx.ConnConfig) error // nil = nothing; for passwords that rotate
	Connect         ConnectFunc                                  // nil = pgx.ConnectConfig; a Pool has no use for it
	Notified        func(pid uint32)                             // of each notification, with the pid of its sender; nil = nothing
}

// A ConnectFunc makes a connection with the settings that it is given.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// connectTimeout applies where the connection string sets none: a dial into a
// black hole must end.
const connectTimeout = 5 * time.Second

// askAfter is how long a connection may have been idle before it is asked whether
// it lives.
const askAfter = time.Second

// margin is by how much a holder's deadline comes before the server's timeout can: a
// tenth is for clocks of different rates.
func (c Config) margin() time.Duration { return c.T/10 + c.LossDrain }

func (c Config) poolConfig(cc *pgx.ConnConfig) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig("host=localhost") // pgxpool insists; every setting is replaced
	if err != nil {
		return nil, err
	}
	pc.ConnConfig = cc
	pc.BeforeConnect = c.before
	// The Locker caps the sessions in use. The room above its cap is for
	// connections whose teardown a dead network delays.
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

// connConfig returns the caller's connection settings with what a connection of ours needs, whatever its server.
func (c Config) connConfig() *pgx.ConnConfig {
	cc := c.ConnConfig.Copy()
	cc.ConnectTimeout = c.dialBound()
	cc.DialFunc = boundDial(cc.DialFunc, cc.ConnectTimeout)
	cc.DialFunc = checkDial(cc.DialFunc)
	cc.AfterNetConnect = receive(tuneSocket(cc.AfterNetConnect))
	cc.BuildFrontend = countFrontend(cc.BuildFrontend)
	cc.OnNotification = nil // the caller's would take what a connection that listens waits for
	if c.Notified != nil {
		cc.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { c.Notified(n.PID) }
	}
	// A watch is interrupted by its context many times in a session's life. pgx's
	// other handler would send a cancel request for each and wait for its answer.
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

// dialBound is how long connecting may take.
func (c Config) dialBound() time.Duration {
	if c.ConnConfig.ConnectTimeout > 0 {
		return c.ConnConfig.ConnectTimeout
	}
	return connectTimeout
}

// statementBound is how long one statement, the wait step apart, may take
// before its session is given up.
func (c Config) statementBound() time.Duration { return min(c.T, 5*time.Second) }
