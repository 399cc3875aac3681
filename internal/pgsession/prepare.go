package pgsession

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// maxWaitStep keeps a waiting snapshot young, whatever deadlock_timeout is.
const maxWaitStep = 900 * time.Millisecond

// A link is the state of a connection for all the sessions that use it in turn.
type link struct {
	conn       *pgconn.PgConn
	pid        uint32 // of the server session, from pg_backend_pid()
	origin     origin
	waitStep   time.Duration
	checks     bool // the server accepted the optional settings
	statements statements
	received   *receiver // nil = arriving data cannot be checked
}

// prepare turns a new connection into a lock session: pooler check, settings, identity, statements. The
// check comes first: a transaction pooler's other clients would get the server session with our settings.
func (m *maker) prepare(ctx context.Context, c *pgx.Conn) error {
	conn := c.PgConn()
	l := &link{conn: conn}
	l.received, _ = conn.Conn().(*receiver)
	l.origin, _ = conn.CustomData()[originKey].(origin)
	if conn.CustomData()[pidKey] != conn.PID() && !m.verdict.Load() {
		conclusive, err := m.probePooler(ctx, conn)
		if err != nil {
			return err
		}
		m.verdict.Store(conclusive) // otherwise the next connection checks again
	}
	if err := conn.Conn().SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("a network connection that can have no deadline: %w", err)
	}
	// pgx bounds the connecting, but not this part.
	ctx, cancel := context.WithTimeout(ctx, m.config.statementBound())
	defer cancel()
	deadlockTimeout, err := m.introduce(ctx, l)
	if err != nil {
		return err
	}
	// Below deadlock_timeout the server does not check for deadlocks among waiters. CREATE INDEX
	// CONCURRENTLY is then never the victim of one of ours.
	l.waitStep = min(deadlockTimeout*9/10, maxWaitStep, m.config.T/6)
	for attempt := range attempts {
		if l.statements, err = prepareStatements(ctx, conn, attempt); sqlstate.Of(err) != sqlstate.QueryCanceled {
			break // otherwise a cancel request for an earlier statement hit it
		}
	}
	if err != nil {
		return fmt.Errorf("preparing lock statements: %w", err)
	}
	conn.CustomData()[linkKey] = l
	return nil
}

// introduce applies the session's settings and reads the server's identity.
func (m *maker) introduce(ctx context.Context, l *link) (deadlockTimeout time.Duration, err error) {
	all := Settings(m.config.T, m.config.ApplicationName, serverMajor(l.conn))
	row, err := queryFirst(ctx, l.conn, setSQL(all, true))
	if l.checks = !refusedSetting(err); !l.checks {
		row, err = queryFirst(ctx, l.conn, setSQL(all, false))
	}
	if err != nil {
		return 0, fmt.Errorf("preparing a lock session: %w", err)
	}
	facts := row[len(row)-7:]
	if facts[0] != "false" {
		return 0, pgconn.ErrStandbyConnection
	}
	seconds, err := strconv.ParseFloat(facts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("reading deadlock_timeout: %w", err)
	}
	if facts[2] != "1" {
		return 0, errors.New(`the database has no language plpgsql that this role may use, and waiting needs it: run CREATE EXTENSION plpgsql, or GRANT USAGE ON LANGUAGE plpgsql`)
	}
	lockTable, err := strconv.ParseInt(facts[3], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the lock table: %w", err)
	}
	m.lockTable.Store(lockTable)
	if l.origin != (origin{}) {
		m.database.Store(l.origin.system + "/" + facts[5])
	}
	pid, err := strconv.ParseUint(facts[6], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading pg_backend_pid(): %w", err)
	}
	l.pid = uint32(pid)
	if m.lineage != nil { // the sessions of a Locker
		ourLockers.note(began{l.pid, parseMicros(facts[4])})
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// refusedSetting reports whether an optional setting can have caused an error.
func refusedSetting(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "22023" || pgErr.Code == "42704" || pgErr.Code == "0A000")
}
