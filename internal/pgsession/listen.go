package pgsession

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// listenerProbe is four times the interval between the keepalive probes of a listening connection:
// it has no lease.
const listenerProbe = 60 * time.Second

// Listen returns a connection to the primary that listens on a channel and is not a lock session: no
// timeout ends it when it is idle. It refuses a pooler that shares server sessions, because another
// client would receive the notifications. The caller closes the connection. ctx bounds only the
// call.
func (d *Dialer) Listen(ctx context.Context, channel string) (*pgx.Conn, error) {
	c, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.listen(ctx, c, channel); err != nil {
		closeNow(c.PgConn())
		return nil, d.connectError(ctx, err)
	}
	return c, nil
}

func (d *Dialer) listen(ctx context.Context, c *pgx.Conn, channel string) error {
	conn := c.PgConn()
	if conn.CustomData()[pidKey] != conn.PID() && !d.verdict.Load() {
		conclusive, err := d.probePooler(ctx, conn)
		if err != nil {
			return err
		}
		d.verdict.Store(conclusive)
	}
	if err := conn.Conn().SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("a network connection that can have no deadline: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.statementBound())
	defer cancel()
	settings := append(Settings(listenerProbe, d.config.ApplicationName, serverMajor(conn)),
		Setting{Name: "idle_session_timeout", Value: "0"},
		Setting{Name: "statement_timeout", Value: "5s"},
		// NOTIFY makes a transaction that is written to the WAL. It need not be on disk.
		Setting{Name: "synchronous_commit", Value: "off"})
	_, err := queryFirst(ctx, conn, setSQL(settings, true))
	if refusedSetting(err) {
		_, err = queryFirst(ctx, conn, setSQL(settings, false))
	}
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()).ReadAll()
	}
	if err != nil {
		return fmt.Errorf("preparing a listening connection: %w", err)
	}
	return nil
}
