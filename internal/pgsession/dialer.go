package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A Dialer makes sessions with a dedicated connection for their whole life, for locks that are held as
// long as a process runs.
type Dialer struct{ maker }

// NewDialer returns a Dialer without connecting. It ignores MaxSessions.
func NewDialer(config Config) *Dialer {
	return &Dialer{maker{config: config, times: config.times(), trust: config.times().Trust()}}
}

// Dial connects and returns a session without locks. ctx bounds only the call.
func (d *Dialer) Dial(ctx context.Context) (s *Session, err error) {
	for range attempts {
		if s, err = d.dial(ctx); !hurried(err) {
			break
		}
	}
	return s, err
}

func (d *Dialer) dial(ctx context.Context) (*Session, error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(ctx, conn); err != nil {
		closeNow(conn.PgConn())
		return nil, d.connectError(ctx, err)
	}
	return newSession(&d.maker, linkOf(conn)), nil
}

// Connect returns a connection to the primary that is not a lock session. The caller closes it. ctx
// bounds only the call.
func (d *Dialer) Connect(ctx context.Context) (*pgx.Conn, error) {
	cc := d.connConfig()
	if err := d.config.before(ctx, cc); err != nil {
		return nil, d.connectError(ctx, err)
	}
	connect := d.config.Connect
	if connect == nil {
		connect = pgx.ConnectConfig
	}
	conn, err := connect(ctx, cc)
	if err != nil {
		return nil, d.connectError(ctx, err)
	}
	return conn, nil
}

// Disconnect closes a connection of Connect or Listen, within a second, and waits until all its
// resources here are freed.
func Disconnect(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server ends the session when the socket closes
	<-conn.PgConn().CleanupDone()
}

// closeBound is the limit for closing a connection properly.
const closeBound = time.Second

// Do runs f on a connection without locks, and closes it. reached is false if there was no connection,
// or it was lost: the error is then the connection's. Otherwise the error is f's.
func (d *Dialer) Do(ctx context.Context, f func(*pgx.Conn) error) (reached bool, err error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		_ = conn.Close(ctx) // it has no locks
	}()
	err = f(conn)
	switch {
	case sqlstate.RefusesTransactions(err):
		return false, fmt.Errorf("%w: %w", errTransactionPooler, err)
	case err != nil && conn.IsClosed():
		return false, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return true, err
}

// Close blocks until the watches of all sessions have ended. The caller has closed the sessions.
func (d *Dialer) Close() { d.watches.Wait() }

// Stats returns counters that only increase; Open is not counted.
func (d *Dialer) Stats() session.Stats { return d.stats() }
