package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/monitor/internal/shared"
	"github.com/pglatch/pglatch/monitor/internal/web"
)

// flightTimeout bounds connecting and querying. The server's own bound of 2 s per statement does
// not help when the network fails.
const flightTimeout = 5 * time.Second

// A flight is one query and its waiting viewers.
type flight struct {
	shared.Read

	snapshot Snapshot
	err      error
	picture  *incident.Picture // nil if no viewer asked for verdicts
	verdicts []incident.Verdict
	past     incident.Past
	fleet    *fleet.Fleet // nil = not read

	mu      sync.Mutex
	shown   *web.State        // nil = not requested yet
	encoded []json.RawMessage // the requested locks of the snapshot; nil = not encoded yet
}

// Snapshot returns the locks of the database, as one query saw them. The query began at the time of
// the call, was already running, or ended less than Config.MinInterval before. Any number of
// callers share a query and its error. If ctx ends, this caller's wait ends with its cause, but the
// query continues. Other errors mean that the database did not answer. They contain no password.
// The next call tries again, with a new connection if the old one was lost.
func (m *Monitor) Snapshot(ctx context.Context) (Snapshot, error) {
	f, err := m.look(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	s := f.snapshot
	s.Locks = slices.Clone(s.Locks)
	return s, nil
}

// look is Snapshot for callers that only read.
func (m *Monitor) look(ctx context.Context) (*flight, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f, err := m.join()
	if err != nil {
		return nil, err
	}
	if err := f.Wait(ctx); err != nil {
		return nil, err
	}
	return f, f.err
}

// join returns the flight to wait for, and starts one if necessary.
func (m *Monitor) join() (*flight, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	if m.flight == nil || !m.flight.Fresh(m.config.MinInterval) {
		f := &flight{Read: shared.Begin()}
		m.flight = f
		m.work.Go(func() { m.fly(f) })
	}
	return m.flight, nil
}

func (m *Monitor) fly(f *flight) {
	defer f.End()
	ctx, cancel := context.WithTimeoutCause(m.lifetime, flightTimeout, fmt.Errorf("the database did not answer within %v", flightTimeout))
	defer cancel()
	m.queries.Add(1)
	var at time.Time
	f.snapshot, at, f.err = m.query(ctx)
	if f.err == nil {
		m.judge(f, at)
	}
	if m.lifetime.Err() != nil {
		f.err = ErrClosed
		return
	}
	if failing := f.err != nil; failing != m.failing {
		m.failing = failing
		if failing {
			m.config.Logger.Warn("lock_snapshot_failed", slog.Any("error", f.err))
		} else {
			m.config.Logger.Info("lock_snapshot_recovered")
		}
	}
}

// query asks once. It asks again if its connection was lost while there were no viewers: the server
// was restarted, or ended an idle session.
func (m *Monitor) query(ctx context.Context) (Snapshot, time.Time, error) {
	reused := m.conn != nil
	s, at, err := m.picture(ctx)
	if err != nil && reused && m.conn == nil && ctx.Err() == nil {
		s, at, err = m.picture(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return Snapshot{}, at, fmt.Errorf("monitor: read pg_locks: %w", err)
	}
	return s, at, nil
}

// picture asks the processes, then the server, so that the server's rows are the newer ones. at is
// when it did so, by the local clock.
func (m *Monitor) picture(ctx context.Context) (s Snapshot, at time.Time, err error) {
	if m.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, m.connConfig)
		if err != nil {
			return Snapshot{}, at, err
		}
		m.conn = conn
	}
	defer func() {
		if m.conn.IsClosed() {
			cleaned := m.conn.PgConn().CleanupDone()
			m.work.Go(func() { <-cleaned })
			m.conn = nil
		}
	}()
	if err := m.lookAround(ctx); err != nil {
		return Snapshot{}, at, err
	}
	m.ask(ctx)
	if m.judging.Load() {
		m.lookAtMailboxes(ctx)
	}
	m.assembler.fleet, m.assembler.spaces = m.fleetNow()
	server, rows, err := read(ctx, m.conn, m.config.ClientAddr)
	if err != nil {
		return Snapshot{}, at, err
	}
	m.pooled = server.pid != m.conn.PgConn().PID()
	at = time.Now()
	s = m.assembler.assemble(server.Server, rows, at)
	s.Answers, s.Fleet = m.heard.answers, m.assembler.fleet
	return s, at, nil
}
