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
func (d *Dialer) Dial(ctx context.Context) (*Session, error) {
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
	cc := d.config.connConfig()
	if before := d.config.BeforeConnect; before != nil {
		if err := before(ctx, cc); err != nil {
			return nil, fmt.Errorf("%w: before connecting: %w", session.ErrUnavailable, err)
		}
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

// Close blocks until the watches of all sessions, which the caller has closed,
// have ended.
func (d *Dialer) Close() { d.watches.Wait() }

// Stats returns counters that only rise; Open is not counted.
func (d *Dialer) Stats() session.Stats { return d.stats() }
