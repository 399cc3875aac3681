package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// messageChannel is the channel that the servers of a database listen on.
const messageChannel = "pglatch_lease"

// sendSQL sends the messages. The commit need not be on disk.
const sendSQL = `SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.count(pg_catalog.pg_notify('` + messageChannel + `', m))
	FROM pg_catalog.unnest($1::text[]) AS m`

// usageSQL drops notifications that no listener still needs from a full queue. NOTIFY does that
// only while the queue is not full.
const usageSQL = `SELECT pg_catalog.pg_notification_queue_usage()`

// Send implements lease.Messenger with NOTIFY.
func (s *Store) Send(ctx context.Context, messages []string) error {
	pass := func(pgx.CollectableRow) error { return nil }
	err := s.rows(ctx, pass, sendSQL, messages)
	if sqlstate.Of(err) == sqlstate.ProgramLimitExceeded {
		_ = s.rows(ctx, pass, usageSQL) // for the next try
	}
	return err
}

// listenProbe is how often a listening connection is checked, and how long the check may take.
const listenProbe = 5 * time.Second

// Listen implements lease.Messenger with LISTEN, on a connection that does not belong to the
// pool. It fails if a pooler shares the server's sessions, because another client would receive
// the notifications.
func (s *Store) Listen(ctx context.Context, ready func(), receive func(message string)) error {
	pool := s.pool.Config()
	dialer := pgsession.NewDialer(pgsession.Config{ConnConfig: pool.ConnConfig, BeforeConnect: pool.BeforeConnect, T: listenProbe})
	listener, err := dialer.Listen(ctx, messageChannel)
	if err != nil {
		return fmt.Errorf("lease/postgres: listening: %w", err)
	}
	defer pgsession.Disconnect(listener)
	look, cancel := context.WithTimeout(ctx, listenProbe)
	err = s.fit(look, listener)
	cancel()
	if err != nil {
		return err
	}
	ready()
	for {
		wait, cancel := context.WithTimeout(ctx, listenProbe)
		n, err := listener.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			receive(n.Payload)
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !listener.IsClosed() && pgconn.Timeout(err):
			wait, cancel := context.WithTimeout(ctx, listenProbe)
			err = listener.Ping(wait)
			cancel()
		}
		if err != nil {
			return fmt.Errorf("lease/postgres: listening: %w", err)
		}
	}
}
