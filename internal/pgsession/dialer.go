package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/session"
)

// A Dialer makes sessions that have a connection of their own from beginning to
// end, for locks that are held for as long as a process runs.
type Dialer struct{ maker }

// NewDialer returns a Dialer without connecting. MaxSessions is not for it.
func NewDialer(config Config) *Dialer {
	return &Dialer{maker{config: config}}
}

// Dial connects and returns a session without locks. ctx bounds the call only.
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

// Connect returns a connection to the primary that is no lock session. The caller
// closes it. ctx bounds the call only.
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

// Disconnect closes a connection of Connect or Listen, in a second at most, and waits until nothing of
// it is left here.
func Disconnect(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server ends the session when the socket closes
	<-conn.PgConn().CleanupDone()
}

// closeBound is how long a connection may take to say goodbye.
const closeBound = time.Second

// Do runs f on a connection that carries no lock, and closes it. reached is false if there was none, or
// none any more: the error is then the connection's, and f's otherwise.
func (d *Dialer) Do(ctx context.Context, f func(*pgx.Conn) error) (reached bool, err error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		_ = conn.Close(ctx) // there is nothing on it
	}()
	if err = f(conn); err != nil && conn.IsClosed() {
		return false, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return true, err
}

// Close blocks until the watches of all sessions, which the caller has closed,
// have ended.
func (d *Dialer) Close() { d.watches.Wait() }

// Stats returns counters that only rise; Open is not counted.
func (d *Dialer) Stats() session.Stats { return d.stats() }
