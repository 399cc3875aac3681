package pgsession

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A maker turns connections into lock sessions.
type maker struct {
	config    Config
	times     renew.Times   // those of config
	trust     time.Duration // and how long an answer is trusted
	lineage   *lineage      // nil = sessions may use any server
	counters  counters
	clock     boottime.Clock // for frequent reads
	verdict   atomic.Bool    // a pooler was detected, and it keeps sessions apart
	watches   sync.WaitGroup // running watches and their reports of loss
	lockTable atomic.Int64   // locks that the server has room for; 0 before the first connection
	database  atomic.Value   // string: the server's system and the database's oid; nil = unknown
}

type counters struct {
	pings, watches, pidChecks, lost atomic.Int64
}

// connectError types the failure of a connection attempt.
func (m *maker) connectError(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	before, isBefore := errors.AsType[*session.BeforeConnectError](err)
	other, isOther := errors.AsType[*session.OtherServerError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isBefore:
		return before
	case isOther:
		return other
	case errors.Is(err, pgconn.ErrStandbyConnection):
		return fmt.Errorf("%w: it has a lock space of its own and would grant a key that the primary has granted; connect to the primary; %s", session.ErrStandby, proveIt)
	case errors.Is(err, session.ErrPooler), errors.Is(err, session.ErrStandby):
		return err
	case errors.As(err, &pgErr) && pgErr.Code == sqlstate.OutOfMemory:
		return lockTableFull(pgErr)
	}
	if refused := Refusal(err); refused != nil {
		return refused
	}
	return fmt.Errorf("%w: %w", session.ErrUnavailable, err)
}

// linkOf returns the link that prepare stored on the connection.
func linkOf(conn *pgx.Conn) *link { return conn.PgConn().CustomData()[linkKey].(*link) }

func (m *maker) stats() session.Stats {
	return session.Stats{
		Pings:     m.counters.pings.Load(),
		Watches:   m.counters.watches.Load(),
		PIDChecks: m.counters.pidChecks.Load(),
		Lost:      m.counters.lost.Load(),
	}
}
